-- Reads that depend on one another. Questions follow one another, each as its code, the number of its arguments, and
-- the arguments; answers in the same order. The first argument is what the keys of nodes begin with.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local byte, sub, format = string.byte, string.sub, string.format

-- Decimal text of a big endian number of 8 bytes. Doubles hold 53 bits, inodes of the trash have 63.
local function decimal(bytes, from)
  local a, b, c, d, e, f, g, h = byte(bytes, from, from + 7)
  local low = ((e * 256 + f) * 256 + g) * 256 + h
  if a == 0 and b < 32 then return format('%.0f', ((b * 256 + c) * 256 + d) * 4294967296 + low) end
  local limbs, parts = { a * 256 + b, c * 256 + d, e * 256 + f, g * 256 + h }, {}
  for part = 1, 3 do
    local rest = 0
    for n = 1, 4 do
      local value = rest * 65536 + limbs[n]
      rest = value % 10000000
      limbs[n] = (value - rest) / 10000000
    end
    parts[part] = format('%07.0f', rest)
  end
  return (string.gsub(parts[3] .. parts[2] .. parts[1], '^0+', ''))
end

-- Entries of a directory, each followed by the node it names.
local function follow(key, first, last)
  local entries = call('HMGET', key, unpack(A, first, last))
  local out, nodes, whose = {}, {}, {}
  for n = 1, #entries do
    local entry = entries[n]
    out[2 * n - 1], out[2 * n] = entry, false
    if entry and #entry == 9 then
      local at = #nodes + 1
      nodes[at], whose[at] = A[1] .. decimal(entry, 2), 2 * n
    end
  end
  if #nodes > 0 then
    local attrs = call('MGET', unpack(nodes))
    for n = 1, #attrs do out[whose[n]] = attrs[n] end
  end
  return out
end

-- As many fields of a hash as wanted, or all.
local function names(key, limit)
  if limit == 0 then return {} end
  if call('HLEN', key) <= limit then return call('HKEYS', key) end
  local out, cursor = {}, '0'
  repeat
    local page = call('HSCAN', key, cursor, 'COUNT', limit + 10)
    cursor = page[1]
    for n = 1, #page[2], 2 do
      if #out < limit then out[#out + 1] = page[2][n] end
    end
  until #out >= limit or cursor == '0'
  return out
end

-- Index and records of each chunk that has any.
local function chunks(prefix, from, to)
  local out = {}
  for index = from, to - 1 do
    local records = call('LRANGE', prefix .. format('%.0f', index), 0, -1)
    if #records > 0 then
      out[#out + 1] = format('%.0f', index)
      out[#out + 1] = table.concat(records)
    end
  end
  return out
end

-- Key, field and value of every lock of a session.
local function locks(index, session)
  local out = {}
  for _, key in ipairs(call('SMEMBERS', index)) do
    local all = call('HGETALL', key)
    for n = 1, #all, 2 do
      if sub(all[n], 1, #session) == session then
        local at = #out
        out[at + 1], out[at + 2], out[at + 3] = key, all[n], all[n + 1]
      end
    end
  end
  return out
end

local answers, at = {}, 2
while at < #A do
  local op, last = A[at], at + 1 + tonumber(A[at + 1])
  local first = at + 2
  local answer
  if op == 'f' then
    answer = follow(A[first], first + 1, last)
  elseif op == 'n' then
    answer = names(A[first], tonumber(A[first + 1]))
  elseif op == 'c' then
    answer = chunks(A[first], tonumber(A[first + 1]), tonumber(A[first + 2]))
  elseif op == 'l' then
    answer = locks(A[first], A[first + 1])
  end
  answers[#answers + 1] = answer
  at = last + 1
end
return answers
