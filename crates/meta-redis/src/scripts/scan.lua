-- One page of a collection: the code of the scan, a limit, then the scan's own arguments.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local op, limit = A[1], A[2]

-- Calls `take` with at most 1000 of `keys` at a time.
local function by_thousand(keys, take)
  for from = 1, #keys, 1000 do take(from, math.min(from + 999, #keys)) end
end

-- Keys of the whole database that look like `glob` and then like `pattern` behind `prefix` bytes.
local function keys(cursor, glob, prefix, pattern)
  local page = call('SCAN', cursor, 'MATCH', glob, 'COUNT', limit)
  local out = {}
  for _, key in ipairs(page[2]) do
    if string.find(key, pattern, prefix + 1) then out[#out + 1] = key end
  end
  return page[1], out
end

-- Key and content of each string or list, key and member of each set.
local function contents(kind, cursor, glob, prefix, pattern)
  local next, found = keys(cursor, glob, prefix, pattern)
  local out, at = {}, 0
  local function add(key, content)
    out[at + 1], out[at + 2] = key, content
    at = at + 2
  end
  if kind == 'string' then
    by_thousand(found, function(first, last)
      local values = call('MGET', unpack(found, first, last))
      for n = 1, #values do add(found[first + n - 1], values[n]) end
    end)
    return { next, out }
  end
  for _, key in ipairs(found) do
    if kind == 'list' then
      add(key, table.concat(call('LRANGE', key, '0', '-1')))
    else
      for _, member in ipairs(call('SMEMBERS', key)) do add(key, member) end
    end
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

-- The arguments from there on.
local function rest(first)
  local out = {}
  for at = first, #A do out[#out + 1] = A[at] end
  return out
end

if op == 'hashes' then return hashes(A[3], A[4], tonumber(A[5]), A[6], A[7], rest(8)) end
if op == 'joined' then return joined(A[3], A[4], A[5], rest(6)) end
return contents(op, A[3], A[4], tonumber(A[5]), A[6])
