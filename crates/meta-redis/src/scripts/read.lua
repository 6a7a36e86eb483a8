-- Reads that depend on one another, entries with their nodes aside. Questions follow one another, each as its code, the
-- number of its arguments, and the arguments; answers in the same order.
local A, call, tonumber = ARGV, redis.call, tonumber
local sub, format = string.sub, string.format

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

-- Key and records of each chunk that has any. Most have none, behind the end of a file: many are ruled out at once.
local function chunks(prefix, from, to)
  local out = {}
  for start = from, to - 1, 64 do
    local keys = {}
    for index = start, math.min(start + 63, to - 1) do keys[#keys + 1] = prefix .. format('%d', index) end
    local left = call('EXISTS', unpack(keys))
    for n = 1, #keys do
      if left == 0 then break end
      local records = call('LRANGE', keys[n], '0', '-1')
      if #records > 0 then
        left = left - 1
        out[#out + 1] = keys[n]
        out[#out + 1] = table.concat(records)
      end
    end
  end
  return out
end

-- Position, fields and values of each hash that is there. Most are not: all of them are ruled out at once.
local function hashes(first, last)
  local out, left = {}, call('EXISTS', unpack(A, first, last))
  for at = first, last do
    if left == 0 then break end
    local fields = call('HGETALL', A[at])
    if #fields > 0 then
      left = left - 1
      out[#out + 1] = at - first
      out[#out + 1] = fields
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

local answers, at = {}, 1
while at < #A do
  local op, last = A[at], at + 1 + tonumber(A[at + 1])
  local first = at + 2
  local answer
  if op == 'n' then
    answer = names(A[first], tonumber(A[first + 1]))
  elseif op == 'c' then
    answer = chunks(A[first], tonumber(A[first + 1]), tonumber(A[first + 2]))
  elseif op == 'x' then
    answer = hashes(first, last)
  elseif op == 'l' then
    answer = locks(A[first], A[first + 1])
  end
  answers[#answers + 1] = answer
  at = last + 1
end
return answers
