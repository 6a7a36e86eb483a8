-- One commit. The first argument is the position of the first write; from the second on operations follow, each as
-- its code, the number of its arguments, and the arguments. Checks come first, and nothing is written unless all of
-- them hold, the preconditions of writes included. Answers the positions of what failed, or nothing.
--
-- What creates, writes and unlinks need stands in the two loops at the end. The functions for the rest are made when
-- one of them is first met: making all of them costs more than a small commit.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local sub, byte, find, format = string.sub, string.byte, string.find, string.format
local last_arg, failed, seen, doing = #A, {}, {}, ''
local bumped, sets, check, write, differ, holders, new_first, new_last
-- The last time that a node was compared with: the text, and its three parts.
local time, time_high, time_low, time_nanos

-- Numbers that commands take are texts here: Redis formats those that are numbers as doubles, which takes longer than the
-- command.

-- A whole number as text. Numbers with a fraction take several times as long to format, and where a long is short
-- all others have to be formatted as such.
local function decimal(number)
  if number < 2147483648 and number > -2147483648 then return format('%d', number) end
  return format('%.0f', number)
end

-- A number of four bytes.
local function number(a, b, c, d) return ((a * 256 + b) * 256 + c) * 256 + d end

-- Whether a time of a node is before `time`. Comparing strings would follow the server's locale.
local function is_before(attr, from)
  local a, b, c, d, e, f, g, h, i, j, k, l = byte(attr, from, from + 11)
  -- What is before 1970 has the highest bit set, and the time of a change has not.
  if a > 127 then return true end
  local part = number(a, b, c, d)
  if part ~= time_high then return part < time_high end
  part = number(e, f, g, h)
  if part ~= time_low then return part < time_low end
  return number(i, j, k, l) < time_nanos
end

-- Every `stride`th argument.
local function every(first, last, stride)
  local out, n = {}, 0
  for at = first, last, stride do n = n + 1; out[n] = A[at] end
  return out
end

-- Every second argument must be a key that does not exist.
local function exist_not(first, last)
  if call('EXISTS', unpack(every(first, last, 2))) == 0 then return end
  for item = first, last, 2 do
    if call('EXISTS', A[item]) == 1 then failed[#failed + 1] = item end
  end
end

-- Appends the records of each list.
local function push(first, last)
  for at = first, last, 2 do
    local records = A[at + 1]
    if #records == 24 then
      call('RPUSH', A[at], records)
    else
      -- The stack takes some 8,000 at once.
      local list, n = {}, 0
      for from = 1, #records, 24 do
        n = n + 1
        list[n] = sub(records, from, from + 23)
        if n == 4000 or from + 24 > #records then
          call('RPUSH', A[at], unpack(list, 1, n))
          n = 0
        end
      end
    end
  end
end

-- Makes the comparison of nodes whose bytes are not the same.
local function comparison()
  -- Access ACL, default ACL and tier are optional, and so is the byte after them: their full form.
  local function tail(attr)
    local rest, acl = sub(attr, 72), '\0\0\0\0\0\0\0\0'
    if #rest >= 8 then acl = sub(rest, 1, 8); rest = sub(rest, 9) end
    return acl .. (#rest > 0 and sub(rest, 1, 1) or '\0')
  end

  local function body(attr) return sub(attr .. string.rep('\0', 71), 1, 71) end

  return function(op, a, b)
    if tail(a) ~= tail(b) then return true end
    a, b = body(a), body(b)
    -- Without times, links, length: flags, type, mode, owner, group; parent.
    return a ~= b and (op == 'nl' or sub(a, 1, 11) ~= sub(b, 1, 11) or sub(a, 64) ~= sub(b, 64))
  end
end

-- Makes the checks that are not in the loop below.
local function checks()
  local function fail(at) failed[#failed + 1] = at end

  -- Refuses to add to what is no number, or so large that the sum might be none, before anything is written.
  local function numeric(value)
    if not value or value == '0' then return end
    local digits = string.match(value, '^%-?([1-9]%d*)$')
    if not digits or #digits > 19 or (#digits == 19 and byte(digits) == 57) then error('no decimal number') end
  end

  -- What is added to in three hashes: the first decides, and only what exists is added to. Statistics are no reason to
  -- refuse a commit: what is no number in the second and third hash stays what it is.
  local function usage(first, last)
    local fields = every(first + 3, last, 4)
    for hash = 0, 2 do
      local got = (hash == 0 and call or redis.pcall)('HMGET', A[first + hash], unpack(fields))
      for n = 1, #fields do
        if hash == 0 then numeric(got[n]) end
        seen[first + 4 * n - 1 + hash] = got[n]
      end
    end
  end

  -- Limits, bytes, inodes. Owners get a record if they have none.
  local function charges(op, key, first, last)
    for at = first + 3, last, 3 do
      seen[at] = call('HEXISTS', key, A[at]) == 1 or op == 'qk'
      for n = 1, 2 do numeric(call('HGET', A[first + n], A[at])) end
    end
  end

  -- Looks whether limits, two numbers of 8 bytes, admit that much more. Doubles are exact up to 8 PiB.
  local function room(first, last)
    for at = first + 3, last, 3 do
      local limits = call('HGET', A[first], A[at])
      for n = 1, limits and #limits >= 16 and 2 or 0 do
        local most, more = 0, tonumber(A[at + n])
        for place = 8 * n - 7, 8 * n do most = most * 256 + byte(limits, place) end
        -- Those from 2^63 on are below 0: none.
        if more > 0 and most > 0 and most < 9223372036854775808 then
          local used = tonumber(call('HGET', A[first + n], A[at]) or '0')
          if used and used + more > most then fail(at); break end
        end
      end
    end
  end

  -- Whether a field is there. A stored 0 (`k`), or all below it too (`p`), is as good as nothing.
  local function is_there(kind, value)
    return value and (kind == 'h' or value ~= '0' and (kind == 'k' or byte(value) ~= 45))
  end

  function holders(key, index)
    local fields, out = call('HKEYS', key), {}
    for n = 1, #fields do out[n] = index .. sub(fields[n], 1, (find(fields[n], '_', 1, true) or 1) - 1) end
    return out
  end

  local lengths = { h = 'HLEN', z = 'ZCARD', t = 'SCARD', l = 'LLEN' }

  local function check(op, first, last)
    local key, kind, action = A[first], sub(op, 1, 1), sub(op, 2)
    doing = key
    if action == 's' or action == 'r' then
      -- What is written whatever is there.
    elseif op == 'li' then
      exist_not(first, last)
    elseif op == 'le' then
      for at = first, last, 2 do
        doing = A[at]
        local got = call('LRANGE', doing, '0', '-1')
        if (#got == 1 and got[1] or table.concat(got)) ~= A[at + 1] then fail(at) end
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
    elseif kind == 's' then
      local want = action == 'a' and 0 or 1
      if call('EXISTS', unpack(A, first, last)) ~= want * (last - first + 1) then
        for at = first, last do if call('EXISTS', A[at]) ~= want then fail(at) end end
      end
    elseif op == 'kn' or op == 'pn' then
      local got = call('HMGET', key, unpack(every(first + 1, last, 2)))
      for n = 1, #got do
        numeric(got[n])
        seen[first + 2 * n - 1] = got[n]
      end
    elseif op == 'du' then
      usage(first, last)
    elseif op == 'qc' or op == 'qk' then
      charges(op, key, first, last)
    elseif op == 'qe' then
      room(first, last)
    elseif op == 'lu' then
      for at = first, last, 3 do call('HLEN', A[at]); call('SCARD', A[at + 2]) end
    elseif op == 'xl' then
      for _, index in ipairs(holders(key, A[first + 1])) do call('SCARD', index) end
    elseif op == 've' then
      if call('HLEN', key) ~= tonumber(A[first + 1]) then fail(first + 1) end
    elseif action == 'c' and lengths[kind] then
      call(lengths[kind], key)
    elseif kind == 'z' or kind == 't' then
      -- A score that must be equal stands before its member.
      local stride = op == 'ze' and 2 or 1
      for at = first + 1, last, stride do
        local got = call(kind == 'z' and 'ZSCORE' or 'SISMEMBER', key, A[at + stride - 1])
        local there = got and got ~= 0 and (op ~= 'ze' or tonumber(got) == tonumber(A[at]))
        if not there == (action == 'e' or action == 'd') then fail(at) end
      end
    elseif lengths[kind] or kind == 'k' or kind == 'p' then
      local stride = action == 'i' and 2 or 1
      local got = call('HMGET', key, unpack(every(first + 1, last, stride)))
      for n = 1, #got do
        if not is_there(kind, got[n]) == (action == 'd') then fail(first + 1 + stride * (n - 1)) end
      end
    end
  end

  return check, numeric
end

-- Makes the writes that are not in the loop below.
local function writes()
  -- Adds to numbers in a hash, each of another field, and removes what becomes nothing.
  local function add(op, first, last)
    local key, put, gone, p, g = A[first], {}, {}, 0, 0
    for at = first + 1, last, 2 do
      local value, by = seen[at] or '0', A[at + 1]
      if #value < 16 and #by < 16 then
        local now = value + by
        if (op == 'kn' and now == 0) or (op == 'pn' and now <= 0) then
          g = g + 1
          gone[g] = A[at]
        else
          put[p + 1], put[p + 2] = A[at], decimal(now)
          p = p + 2
        end
      else
        -- Doubles are not exact here, and there is no way down to nothing.
        call('HINCRBY', key, A[at], by)
      end
    end
    if p > 0 then call('HSET', key, unpack(put)) end
    if g > 0 then call('HDEL', key, unpack(gone)) end
  end

  -- Adds to one of three hashes, where the first has a value.
  local function add_usage(run, hash, first, last)
    local put, p = {}, 0
    for at = first + 3, last, 4 do
      local value, by = seen[at + hash], A[at + hash + 1]
      if not seen[at] or value and by == '0' then
        -- Nothing changes.
      elseif not value or #value < 16 and #by < 16 and find(value, '^%-?%d+$') then
        put[p + 1], put[p + 2] = A[at], value and decimal(value + by) or by
        p = p + 2
      else
        -- Doubles are not exact here.
        run('HINCRBY', A[first + hash], A[at], by)
      end
    end
    if p > 0 then run('HSET', A[first + hash], unpack(put)) end
  end

  local commands = { pi = 'HSET', ki = 'HSET', hd = 'HDEL', zs = 'ZADD', zd = 'ZREM', zr = 'ZREM', ti = 'SADD', ts = 'SADD',
    td = 'SREM', tr = 'SREM' }

  -- Whether a field of a hash begins with `prefix`; `take` gets each of them, if it is there.
  local function begins(key, prefix, take)
    local fields, any = call('HKEYS', key), false
    for n = 1, #fields do
      if sub(fields[n], 1, #prefix) == prefix then
        any = true
        if take then take(fields[n]) end
      end
    end
    return any
  end

  local function write(op, first, last)
    local key = A[first]
    if commands[op] then
      call(commands[op], key, unpack(A, first + 1, last))
    elseif op == 'sd' then
      call('UNLINK', unpack(A, first, last))
    elseif op == 'li' or op == 'ls' then
      push(first, last)
    elseif op == 'kn' or op == 'pn' then
      add(op, first, last)
    elseif op == 'du' then
      for hash = 0, 2 do add_usage(hash == 0 and call or redis.pcall, hash, first, last) end
    elseif op == 'qc' or op == 'qk' then
      for at = first + 3, last, 3 do
        if op == 'qk' then call('HSETNX', key, A[at], string.rep('\255', 16)) end
        if seen[at] then
          for n = 1, 2 do call('HINCRBY', A[first + n], A[at], A[at + n]) end
        end
      end
    elseif op == 'gl' then
      call('RPUSH', key, unpack(A, first + 1, last))
    elseif op == 'lu' then
      -- Takes a lock's key out of the index of a session that has no more locks there.
      for at = first, last, 3 do
        if not begins(A[at], A[at + 1]) then call('SREM', A[at + 2], A[at]) end
      end
    elseif op == 'xl' then
      for _, held in ipairs(holders(key, A[first + 1])) do call('SREM', held, key) end
      call('UNLINK', key)
    elseif op == 'xc' then
      local from, to = tonumber(A[first + 1]), tonumber(A[first + 2]) - 1
      for start = from, to, 1000 do
        local keys = {}
        for index = start, math.min(start + 999, to) do keys[#keys + 1] = key .. format('%d', index) end
        call('UNLINK', unpack(keys))
      end
    elseif op == 'xf' then
      begins(key, A[first + 1], function(field) call('HDEL', key, field) end)
    end
  end

  return write
end

local function all_checks()
  local numeric
  local at = 2
  while at < last_arg do
    local op, first = A[at], at + 2
    local last = at + 1 + tonumber(A[at + 1])
    doing = A[first]
    if (op == 'he' or op == 'hi') and last == first + 2 then
      local v = call('HGET', doing, A[first + 1])
      if (op == 'hi' and v) or (op == 'he' and v ~= A[last]) then failed[#failed + 1] = first + 1 end
    elseif op == 'he' or op == 'hi' then
      local got = call('HMGET', doing, unpack(every(first + 1, last, 2)))
      for n = 1, #got do
        local v = got[n]
        if (op == 'hi' and v) or (op == 'he' and v ~= A[first + 2 * n]) then
          failed[#failed + 1] = first + 2 * n - 1
        end
      end
    elseif op == 'mg' then
      -- What the following operations look at.
      local got = call('MGET', unpack(A, first, last))
      for n = 1, #got do seen[A[first + n - 1]] = got[n] end
    elseif op == 'nl' or op == 'ng' then
      for item = first, last, 2 do
        local v = seen[A[item]]
        if v ~= A[item + 1] then
          differ = differ or comparison()
          if not v or differ(op, v, A[item + 1]) then failed[#failed + 1] = item end
        end
      end
    elseif op == 'si' and not new_first then
      new_first, new_last = first, last
    elseif op == 'si' then
      exist_not(first, last)
    elseif op == 'nb' then
      -- A key, what to add to its links, and the least mtime and ctime, if any.
      bumped = bumped or {}
      for item = first, last, 3 do
        doing = A[item]
        local attr, by, least = seen[doing], A[item + 1], A[item + 2]
        if not attr then
          failed[#failed + 1] = item
        elseif #attr < 63 then
          error('no attributes of a node')
        else
          local rest
          if by == '0' then
            rest = sub(attr, 48)
          else
            local links = number(byte(attr, 48, 51)) + tonumber(by)
            if links < 0 then links = 0 elseif links > 4294967295 then links = 4294967295 end
            local d = links % 256; links = (links - d) / 256
            local c = links % 256; links = (links - c) / 256
            local b = links % 256
            rest = string.char((links - b) / 256, b, c, d) .. sub(attr, 52)
          end
          local mtime, ctime = sub(attr, 24, 35), sub(attr, 36, 47)
          if least ~= '' then
            if least ~= time then
              time, time_high, time_low = least, number(byte(least, 1, 4)), number(byte(least, 5, 8))
              time_nanos = number(byte(least, 9, 12))
            end
            local same = mtime == ctime
            if is_before(attr, 24) then mtime = time end
            if same then ctime = mtime elseif is_before(attr, 36) then ctime = time end
          end
          local n = #bumped
          bumped[n + 1] = doing
          bumped[n + 2] = sub(attr, 1, 23) .. mtime .. ctime .. rest
        end
      end
    elseif op == 'cn' then
      sets = sets or {}
      for item = first, last, 2 do
        doing = A[item]
        -- A key of another type looks as if it were not there, until it is asked for alone.
        local v = seen[doing] or call('GET', doing) or '0'
        if #v < 16 and #A[item + 1] < 16 and find(v, '^%-?%d+$') then
          local n = #sets
          v = decimal(v + A[item + 1])
          sets[n + 1], sets[n + 2], seen[doing] = doing, v, v
        else
          -- Doubles are not exact here.
          if not numeric then check, numeric = checks() end
          numeric(v)
          seen[item] = true
        end
      end
    elseif op == 'lp' then
      for item = first, last, 2 do
        doing = A[item]
        -- Nobody could tell what new records lie on behind a damaged one; all would cost more than the newest.
        local newest = call('LINDEX', doing, '-1')
        if newest and #newest ~= 24 then error('a slice of ' .. #newest .. ' bytes, not 24', 0) end
      end
    elseif op == 'zi' then
      for item = first + 1, last, 2 do
        if call('ZSCORE', doing, A[item + 1]) then failed[#failed + 1] = item end
      end
    elseif op ~= 'hs' and op ~= 'ss' and op ~= 'hr' and op ~= 'sr' and op ~= 'pb' then
      if not check then check, numeric = checks() end
      check(op, first, last)
    end
    at = last + 1
  end
end

local fine, why = pcall(all_checks)
if not fine then
  if type(why) == 'table' then why = why.err end
  return redis.error_reply('DAMAGED ' .. doing .. ' ' .. tostring(why))
end
if #failed > 0 then return failed end

-- The first write finds out itself whether it may.
if new_first and call('MSETNX', unpack(A, new_first, new_last)) == 0 then
  exist_not(new_first, new_last)
  return failed
end
sets = sets or {}
local at = tonumber(A[1])
while at < last_arg do
  local op, first = A[at], at + 2
  local last = at + 1 + tonumber(A[at + 1])
  if op == 'hi' or op == 'hs' then
    call('HSET', A[first], unpack(A, first + 1, last))
  elseif first == new_first then
    -- Done.
  elseif op == 'si' or op == 'ss' then
    local n = #sets - first + 1
    for item = first, last do sets[n + item] = A[item] end
  elseif op == 'hr' then
    call('HDEL', A[first], unpack(A, first + 1, last))
  elseif op == 'sr' then
    call('UNLINK', unpack(A, first, last))
  elseif op == 'zi' then
    call('ZADD', A[first], unpack(A, first + 1, last))
  elseif op == 'nb' then
    if bumped then
      for n = 1, #bumped do sets[#sets + 1] = bumped[n] end
      bumped = nil
    end
  elseif op == 'cn' then
    for item = first, last, 2 do
      if seen[item] then call('INCRBY', A[item], A[item + 1]) end
    end
  elseif op == 'lp' then
    push(first, last)
  elseif op == 'pb' then
    -- All that is left is to be written at once. Who misses a message sees that by its number.
    for item = first + 1, last do redis.pcall('PUBLISH', A[first], A[item]) end
  else
    write = write or writes()
    write(op, first, last)
  end
  at = last + 1
end
for n = 1, #sets, 4000 do call('MSET', unpack(sets, n, math.min(n + 3999, #sets))) end
return false
