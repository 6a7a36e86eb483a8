-- One commit. The first argument is the position of the first write; from the second on operations follow, each as
-- its code, the number of its arguments, and the arguments. Checks come first, and nothing is written unless all of
-- them hold, the preconditions of writes included. Answers the positions of what failed, or nothing.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local sub, byte, char, find = string.sub, string.byte, string.char, string.find
local last_arg, first_write = #A, tonumber(A[1])
local failed, seen, doing = {}, {}, ''
local bumped

local function fail(at) failed[#failed + 1] = at end

-- Every `stride`th argument.
local function every(first, last, stride)
  local out, n = {}, 0
  for at = first, last, stride do n = n + 1; out[n] = A[at] end
  return out
end

-- Access ACL, default ACL and tier are optional, and so is the byte after them: their full form.
local function tail(attr)
  local rest, acl = sub(attr, 72), '\0\0\0\0\0\0\0\0'
  if #rest >= 8 then acl = sub(rest, 1, 8); rest = sub(rest, 9) end
  return acl .. (#rest > 0 and sub(rest, 1, 1) or '\0')
end

local function body(attr)
  if #attr >= 71 then return sub(attr, 1, 71) end
  return attr .. string.rep('\0', 71 - #attr)
end

local function same(a, b) return a == b or (body(a) == body(b) and tail(a) == tail(b)) end

-- Flags, type, mode, owner, group; parent; ACLs and tier.
local function alike(a, b)
  if a == b then return true end
  return sub(a, 1, 11) == sub(b, 1, 11) and sub(body(a), 64) == sub(body(b), 64) and tail(a) == tail(b)
end

local function node(key)
  local attr = seen[key]
  if attr == nil then attr = call('GET', key); seen[key] = attr end
  return attr
end

-- The later of two 12-byte times. String comparison would follow the server's locale.
local function later(a, b)
  for at = 1, 12 do
    local x, y = byte(a, at), byte(b, at)
    if x ~= y then return x > y and a or b end
  end
  return a
end

local function bump(attr, by, time)
  local a, b, c, d = byte(attr, 48, 51)
  local links = ((a * 256 + b) * 256 + c) * 256 + d + by
  if links < 0 then links = 0 elseif links > 4294967295 then links = 4294967295 end
  d = links % 256; links = (links - d) / 256
  c = links % 256; links = (links - c) / 256
  b = links % 256; a = (links - b) / 256
  local mtime, ctime = sub(attr, 24, 35), sub(attr, 36, 47)
  if time ~= '' then mtime = later(mtime, time); ctime = later(ctime, time) end
  return sub(attr, 1, 23) .. mtime .. ctime .. char(a, b, c, d) .. sub(attr, 52)
end

-- Refuses to add to what is no number, or so large that the sum might be none, before anything is written.
local function numeric(value)
  if not value or value == '0' then return end
  local digits = string.match(value, '^%-?([1-9]%d*)$')
  if not digits or #digits > 19 or (#digits == 19 and byte(digits) == 57) then error('no decimal number') end
end

local function check_field_op(op, first, last)
  local key = A[first]
  if op == 'hi' or op == 'pi' or op == 'ki' then
    local got = call('HMGET', key, unpack(every(first + 1, last, 2)))
    for n = 1, #got do
      local v = got[n]
      if v and (op == 'hi' or (v ~= '0' and (op == 'ki' or sub(v, 1, 1) ~= '-'))) then fail(first + 2 * n - 1) end
    end
  elseif op == 'he' then
    local got = call('HMGET', key, unpack(every(first + 1, last, 2)))
    for n = 1, #got do
      if got[n] ~= A[first + 2 * n] then fail(first + 2 * n - 1) end
    end
  else
    local got = call('HMGET', key, unpack(A, first + 1, last))
    for n = 1, #got do
      local v = got[n]
      if op == 'hd' then
        if not v then fail(first + n) end
      elseif v and (op == 'ha' or (v ~= '0' and (op == 'ka' or sub(v, 1, 1) ~= '-'))) then
        fail(first + n)
      end
    end
  end
end

-- Index keys of the sessions that have locks in `key`.
local function holders(key, index)
  local fields, out = call('HKEYS', key), {}
  for n = 1, #fields do out[n] = index .. sub(fields[n], 1, (find(fields[n], '_', 1, true) or 1) - 1) end
  return out
end

local field_ops = { hi = 1, pi = 1, ki = 1, he = 1, hd = 1, ha = 1, pa = 1, ka = 1 }

local function check(op, first, last)
  local key = A[first]
  doing = key
  if field_ops[op] then
    check_field_op(op, first, last)
  elseif op == 'nl' or op == 'ng' then
    local got = call('MGET', unpack(every(first, last, 2)))
    local holds = op == 'nl' and same or alike
    for n = 1, #got do
      local at = first + 2 * n - 2
      seen[A[at]] = got[n]
      if not got[n] or not holds(got[n], A[at + 1]) then fail(at) end
    end
  elseif op == 'nb' then
    bumped = bumped or {}
    for at = first, last, 3 do
      doing = A[at]
      local attr = node(doing)
      if not attr then
        fail(at)
      elseif #attr < 63 then
        error('no attributes of a node')
      else
        local n = #bumped
        bumped[n + 1] = doing; bumped[n + 2] = bump(attr, tonumber(A[at + 1]), A[at + 2])
      end
    end
  elseif op == 'se' then
    local got = call('MGET', unpack(every(first, last, 2)))
    for n = 1, #got do
      if got[n] ~= A[first + 2 * n - 1] then fail(first + 2 * n - 2) end
    end
  elseif op == 'ce' then
    for at = first, last, 2 do
      if (call('GET', A[at]) or '0') ~= A[at + 1] then fail(at) end
    end
  elseif op == 'si' then
    if call('EXISTS', unpack(every(first, last, 2))) > 0 then
      for at = first, last, 2 do if call('EXISTS', A[at]) == 1 then fail(at) end end
    end
  elseif op == 'sa' or op == 'sd' or op == 'sp' then
    local want = op == 'sa' and 0 or 1
    if call('EXISTS', unpack(A, first, last)) ~= want * (last - first + 1) then
      for at = first, last do if call('EXISTS', A[at]) ~= want then fail(at) end end
    end
  elseif op == 've' then
    if call('HLEN', key) ~= tonumber(A[first + 1]) then fail(first + 1) end
  elseif op == 'th' then
    call('HLEN', key)
  elseif op == 'tz' then
    call('ZCARD', key)
  elseif op == 'tt' then
    call('SCARD', key)
  elseif op == 'lp' then
    for at = first, last, 2 do
      doing = A[at]
      call('LLEN', doing)
    end
  elseif op == 'li' then
    for at = first, last, 2 do if call('EXISTS', A[at]) == 1 then fail(at) end end
  elseif op == 'le' then
    for at = first, last, 2 do
      doing = A[at]
      if table.concat(call('LRANGE', doing, 0, -1)) ~= A[at + 1] then fail(at) end
    end
  elseif op == 'zi' then
    for at = first + 1, last, 2 do if call('ZSCORE', key, A[at + 1]) then fail(at) end end
  elseif op == 'ze' then
    for at = first + 1, last, 2 do
      local score = call('ZSCORE', key, A[at + 1])
      if not score or tonumber(score) ~= tonumber(A[at]) then fail(at) end
    end
  elseif op == 'za' or op == 'zd' then
    for at = first + 1, last do
      if (call('ZSCORE', key, A[at]) and 'zd' or 'za') ~= op then fail(at) end
    end
  elseif op == 'ti' or op == 'ta' or op == 'td' or op == 'te' then
    local want = (op == 'td' or op == 'te') and 1 or 0
    for at = first + 1, last do
      if call('SISMEMBER', key, A[at]) ~= want then fail(at) end
    end
  elseif op == 'ci' then
    for at = first, last, 2 do
      doing = A[at]
      numeric(call('GET', doing))
    end
  elseif op == 'hn' or op == 'kn' or op == 'pn' then
    local got = call('HMGET', key, unpack(every(first + 1, last, 2)))
    for n = 1, #got do numeric(got[n]) end
  elseif op == 'us' then
    -- Three hashes; then per record its field and what to add in each. Only what exists is added to.
    for at = first + 3, last, 4 do
      local space, inodes = call('HGET', key, A[at]), call('HGET', A[first + 1], A[at])
      numeric(space); numeric(inodes); numeric(call('HGET', A[first + 2], A[at]))
      seen[at] = space and inodes
    end
  elseif op == 'qc' then
    for at = first + 3, last, 3 do
      seen[at] = call('HEXISTS', key, A[at]) == 1
      numeric(call('HGET', A[first + 1], A[at])); numeric(call('HGET', A[first + 2], A[at]))
    end
  elseif op == 'lu' then
    call('HLEN', key); call('SCARD', A[first + 2])
  elseif op == 'xl' then
    for _, index in ipairs(holders(key, A[first + 1])) do call('SCARD', index) end
  end
end

-- Adds to numbers in a hash, and removes what becomes nothing.
local function add(op, first, last)
  local key = A[first]
  for at = first + 1, last, 2 do
    local now = call('HINCRBY', key, A[at], A[at + 1])
    if (op == 'kn' and now == 0) or (op == 'pn' and now <= 0) then call('HDEL', key, A[at]) end
  end
end

-- Takes a lock's key out of the index of a session that has no more locks there.
local function unindex(key, session, index)
  local fields = call('HKEYS', key)
  for n = 1, #fields do
    if sub(fields[n], 1, #session) == session then return end
  end
  call('SREM', index, key)
end

-- Removes all locks of a file with their index entries.
local function clear_locks(key, index)
  for _, held in ipairs(holders(key, index)) do call('SREM', held, key) end
  call('UNLINK', key)
end

local function clear_chunks(prefix, from, to)
  for start = from, to - 1, 1000 do
    local keys = {}
    for index = start, math.min(start + 999, to - 1) do keys[#keys + 1] = prefix .. string.format('%.0f', index) end
    call('UNLINK', unpack(keys))
  end
end

local function clear_fields(key, prefix)
  local fields = call('HKEYS', key)
  for n = 1, #fields do
    if sub(fields[n], 1, #prefix) == prefix then call('HDEL', key, fields[n]) end
  end
end

local function write(op, first, last)
  local key = A[first]
  if op == 'hi' or op == 'hs' or op == 'pi' or op == 'ki' then
    call('HSET', key, unpack(A, first + 1, last))
  elseif op == 'si' or op == 'ss' then
    call('MSET', unpack(A, first, last))
  elseif op == 'nb' then
    if bumped then
      for at = 1, #bumped, 2000 do call('MSET', unpack(bumped, at, math.min(at + 1999, #bumped))) end
      bumped = nil
    end
  elseif op == 'hd' or op == 'hr' then
    call('HDEL', key, unpack(A, first + 1, last))
  elseif op == 'sd' or op == 'sr' then
    call('UNLINK', unpack(A, first, last))
  elseif op == 'ci' then
    for at = first, last, 2 do call('INCRBY', A[at], A[at + 1]) end
  elseif op == 'lp' or op == 'li' or op == 'lw' then
    for at = first, last, 2 do
      local records, list = A[at + 1], {}
      for from = 1, #records, 24 do list[#list + 1] = sub(records, from, from + 23) end
      call('RPUSH', A[at], unpack(list))
    end
  elseif op == 'hn' or op == 'kn' or op == 'pn' then
    add(op, first, last)
  elseif op == 'us' then
    for at = first + 3, last, 4 do
      if seen[at] then
        for n = 0, 2 do call('HINCRBY', A[first + n], A[at], A[at + n + 1]) end
      end
    end
  elseif op == 'qc' then
    for at = first + 3, last, 3 do
      if seen[at] then
        for n = 1, 2 do call('HINCRBY', A[first + n], A[at], A[at + n]) end
      end
    end
  elseif op == 'zi' or op == 'zs' then
    call('ZADD', key, unpack(A, first + 1, last))
  elseif op == 'zd' or op == 'zr' then
    call('ZREM', key, unpack(A, first + 1, last))
  elseif op == 'ti' or op == 'ts' then
    call('SADD', key, unpack(A, first + 1, last))
  elseif op == 'td' or op == 'tr' then
    call('SREM', key, unpack(A, first + 1, last))
  elseif op == 'lu' then
    unindex(key, A[first + 1], A[first + 2])
  elseif op == 'xl' then
    clear_locks(key, A[first + 1])
  elseif op == 'xc' then
    clear_chunks(key, tonumber(A[first + 1]), tonumber(A[first + 2]))
  elseif op == 'xf' then
    clear_fields(key, A[first + 1])
  elseif op == 'pb' then
    for at = first + 1, last do call('PUBLISH', key, A[at]) end
  end
end

local fine, why = pcall(function()
  local at = 2
  while at < last_arg do
    local last = at + 1 + tonumber(A[at + 1])
    check(A[at], at + 2, last)
    at = last + 1
  end
end)
if not fine then
  if type(why) == 'table' then why = why.err end
  return redis.error_reply('DAMAGED ' .. doing .. ' ' .. tostring(why))
end
if #failed > 0 then return failed end

local at = first_write
while at < last_arg do
  local last = at + 1 + tonumber(A[at + 1])
  write(A[at], at + 2, last)
  at = last + 1
end
return false
