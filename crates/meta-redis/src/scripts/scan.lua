-- One page of a collection: the code of the scan, what node keys begin with, a limit, then the scan's own arguments.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local byte, sub, find, format = string.byte, string.sub, string.find, string.format
local op, limit = A[1], A[3]

local function decimal(bytes, from)
  local a, b, c, d, e, f, g, h = byte(bytes, from, from + 7)
  local low = ((e * 256 + f) * 256 + g) * 256 + h
  -- Several times as fast as formatting a number with a fraction, which the others need where a long is short.
  if a + b + c + d == 0 and e < 128 then return format('%d', low) end
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

-- Calls `take` with at most 1000 of `keys` at a time.
local function by_thousand(keys, take)
  for from = 1, #keys, 1000 do take(from, math.min(from + 999, #keys)) end
end

-- All of a directory: name, entry and node of each. Nothing if it has more than `most`: weaving them takes longer here
-- than a second question takes.
local function entries(key, most)
  if call('HLEN', key) > most then return false end
  local found, out, nodes, whose = call('HGETALL', key), {}, {}, {}
  for n = 1, #found, 2 do
    local at = #out
    out[at + 1], out[at + 2], out[at + 3] = found[n], found[n + 1], false
    if #found[n + 1] == 9 then
      nodes[#nodes + 1] = A[2] .. decimal(found[n + 1], 2)
      whose[#nodes] = at + 3
    end
  end
  by_thousand(nodes, function(first, last)
    local attrs = call('MGET', unpack(nodes, first, last))
    for n = 1, #attrs do out[whose[first + n - 1]] = attrs[n] end
  end)
  return out
end

-- Keys of the whole database that look like `glob` and then like `pattern` behind `prefix` bytes.
local function keys(cursor, glob, prefix, pattern)
  local page = call('SCAN', cursor, 'MATCH', glob, 'COUNT', limit)
  local out = {}
  for _, key in ipairs(page[2]) do
    if find(sub(key, prefix + 1), pattern) then out[#out + 1] = key end
  end
  return page[1], out
end

-- Key and value of each string.
local function strings(cursor, glob, prefix, pattern)
  local next, found = keys(cursor, glob, prefix, pattern)
  local out = {}
  by_thousand(found, function(first, last)
    local values = call('MGET', unpack(found, first, last))
    for n = 1, #values do
      out[#out + 1] = found[first + n - 1]
      out[#out + 1] = values[n]
    end
  end)
  return { next, out }
end

-- Key and content of each list or set.
local function collections(cursor, glob, prefix, pattern, kind)
  local next, found = keys(cursor, glob, prefix, pattern)
  local out = {}
  for _, key in ipairs(found) do
    out[#out + 1] = key
    out[#out + 1] = kind == 'list' and table.concat(call('LRANGE', key, '0', '-1')) or call('SMEMBERS', key)
  end
  return { next, out }
end

-- All hashes that look so, large ones in pages: the scan's cursor, the cursor in the first of the keys still to be
-- read, and those keys, then key, field and value of what was found.
local function hashes(cursor, glob, prefix, pattern, inner, pending)
  if #pending == 0 then cursor, pending = keys(cursor, glob, prefix, pattern) end
  local out, at, wanted = {}, 1, tonumber(limit)
  while at <= #pending and #out < 3 * wanted do
    local page = call('HSCAN', pending[at], inner, 'COUNT', limit)
    for n = 1, #page[2], 2 do
      local to = #out
      out[to + 1], out[to + 2], out[to + 3] = pending[at], page[2][n], page[2][n + 1]
    end
    inner = page[1]
    if inner == '0' then at = at + 1 end
  end
  local rest = {}
  for n = at, #pending do rest[#rest + 1] = pending[n] end
  return { cursor, out, inner, rest }
end

-- A hash or sorted set with the fields of the same name in other hashes.
local function joined(command, cursor, first, others)
  local page = call(command, first, cursor, 'COUNT', limit)
  local found, out, width = page[2], {}, #others + 2
  local fields = {}
  for n = 1, #found, 2 do
    fields[#fields + 1] = found[n]
    local at = (#fields - 1) * width
    out[at + 1], out[at + 2] = found[n], found[n + 1]
  end
  for other = 1, #others do
    by_thousand(fields, function(from, to)
      local values = call('HMGET', others[other], unpack(fields, from, to))
      for n = 1, #values do out[(from + n - 2) * width + 2 + other] = values[n] end
    end)
  end
  return { page[1], out }
end

if op == 'entries' then return entries(A[4], tonumber(limit)) end
if op == 'strings' then return strings(A[4], A[5], tonumber(A[6]), A[7]) end
if op == 'collections' then return collections(A[4], A[5], tonumber(A[6]), A[7], A[8]) end
if op == 'hashes' then
  local pending = {}
  for n = 9, #A do pending[#pending + 1] = A[n] end
  return hashes(A[4], A[5], tonumber(A[6]), A[7], A[8], pending)
end
local others = {}
for n = 7, #A do others[#others + 1] = A[n] end
return joined(A[4], A[5], A[6], others)
