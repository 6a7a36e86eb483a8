-- One commit. The first argument is the position of the first write; from the second on operations follow, each as
-- its code, the number of its arguments, and the arguments. Checks come first, and nothing is written unless all of
-- them hold, the preconditions of writes included. Answers the positions of what failed, or nothing.
--
-- What creates, writes and unlinks need stands in the two loops at the end. The functions for the rest are made when
-- one of them is first met: making all of them costs more than a small commit.
local A, call, unpack, tonumber = ARGV, redis.call, unpack, tonumber
local sub, byte, find, format = string.sub, string.byte, string.find, string.format
local last_arg, failed, seen, doing = #A, {}, {}, ''
local bumped, sets, check, write, differ, new_first, new_last

-- Numbers that commands take are texts here: Redis formats those that are numbers as doubles, which takes longer than the
-- command.

-- A whole number as text. Numbers with a fraction take several times as long to format, and where a long is short
-- all others have to be formatted as such.
local function decimal(number)
  if number < 2147483648 and number > -2147483648 then return format('%d', number) end
  return format('%.0f', number)
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

  return function(op, a, b)
    if op == 'nl' then return not same(a, b) end
    return not alike(a, b)
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
    elseif op == 'se' then
      local got = call('MGET', unpack(every(first, last, 2)))
      for n = 1, #got do
        if got[n] ~= A[first + 2 * n - 1] then fail(first + 2 * n - 2) end
      end
    elseif op == 'ce' then
      for at = first, last, 2 do
        if (call('GET', A[at]) or '0') ~= A[at + 1] then fail(at) end
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
    elseif op == 'li' then
      exist_not(first, last)
    elseif op == 'le' then
      for at = first, last, 2 do
        doing = A[at]
        local got = call('LRANGE', doing, '0', '-1')
        if (#got == 1 and got[1] or table.concat(got)) ~= A[at + 1] then fail(at) end
      end
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
    elseif op == 'kn' or op == 'pn' then
      local got = call('HMGET', key, unpack(every(first + 1, last, 2)))
      for n = 1, #got do
        numeric(got[n])
        seen[first + 2 * n - 1] = got[n]
      end
    elseif op == 'us' then
      -- Three hashes; then per record its field and what to add in each. Only what exists is added to. Statistics
      -- are no reason to look up more: those of the second and third hash that are no numbers stay what they are.
      for at = first + 3, last, 4 do
        local space = call('HGET', key, A[at])
        numeric(space)
        seen[at] = space
      end
    elseif op == 'qc' or op == 'qk' then
      -- Limits, bytes, inodes; then per quota its field and what to add. Owners get a record if they have none.
      for at = first + 3, last, 3 do
        seen[at] = call('HEXISTS', key, A[at]) == 1 or op == 'qk'
        numeric(call('HGET', A[first + 1], A[at])); numeric(call('HGET', A[first + 2], A[at]))
      end
    elseif op == 'lu' then
      call('HLEN', key); call('SCARD', A[first + 2])
    elseif op == 'xl' then
      for _, index in ipairs(holders(key, A[first + 1])) do call('SCARD', index) end
    end
  end

  return check, numeric
end

-- Makes the writes that are not in the loop below.
local function writes()
  -- Index keys of the sessions that have locks in `key`.
  local function holders(key, index)
    local fields, out = call('HKEYS', key), {}
    for n = 1, #fields do out[n] = index .. sub(fields[n], 1, (find(fields[n], '_', 1, true) or 1) - 1) end
    return out
  end

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
      for index = start, math.min(start + 999, to - 1) do keys[#keys + 1] = prefix .. format('%d', index) end
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
    if op == 'pi' or op == 'ki' then
      call('HSET', key, unpack(A, first + 1, last))
    elseif op == 'hd' then
      call('HDEL', key, unpack(A, first + 1, last))
    elseif op == 'sd' or op == 'sr' then
      call('UNLINK', unpack(A, first, last))
    elseif op == 'li' or op == 'lw' then
      push(first, last)
    elseif op == 'kn' or op == 'pn' then
      add(op, first, last)
    elseif op == 'us' then
      for at = first + 3, last, 4 do
        if seen[at] then
          call('HINCRBY', key, A[at], A[at + 1])
          for n = 1, 2 do redis.pcall('HINCRBY', A[first + n], A[at], A[at + n + 1]) end
        end
      end
    elseif op == 'qc' or op == 'qk' then
      for at = first + 3, last, 3 do
        if op == 'qk' then call('HSETNX', key, A[at], string.rep('\255', 16)) end
        if seen[at] then
          for n = 1, 2 do call('HINCRBY', A[first + n], A[at], A[at + n]) end
        end
      end
    elseif op == 'zs' then
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
        local attr, time = seen[doing], A[item + 2]
        if not attr then
          failed[#failed + 1] = item
        elseif #attr < 63 then
          error('no attributes of a node')
        else
          local a, b, c, d = byte(attr, 48, 51)
          local links = ((a * 256 + b) * 256 + c) * 256 + d + tonumber(A[item + 1])
          if links < 0 then links = 0 elseif links > 4294967295 then links = 4294967295 end
          d = links % 256; links = (links - d) / 256
          c = links % 256; links = (links - c) / 256
          b = links % 256; a = (links - b) / 256
          local times = sub(attr, 24, 47)
          if time ~= '' then
            local mtime, ctime = sub(attr, 24, 35), sub(attr, 36, 47)
            -- Comparing strings would follow the server's locale. What is before 1970 has the highest bit set, and the time
            -- of a change has not.
            for n = 1, 12 do
              local x, y = byte(mtime, n), byte(time, n)
              if x ~= y then if x < y or n == 1 and x > 127 then mtime = time end break end
            end
            for n = 1, 12 do
              local x, y = byte(ctime, n), byte(time, n)
              if x ~= y then if x < y or n == 1 and x > 127 then ctime = time end break end
            end
            times = mtime .. ctime
          end
          local n = #bumped
          bumped[n + 1] = doing
          bumped[n + 2] = sub(attr, 1, 23) .. times .. string.char(a, b, c, d) .. sub(attr, 52)
        end
      end
    elseif op == 'ci' then
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
  elseif op == 'ci' then
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
