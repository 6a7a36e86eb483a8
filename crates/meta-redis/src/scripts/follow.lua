-- Entries, each followed by the node it names. The first argument is what the keys of nodes begin with; then, per
-- directory, the number of names, the directory's key, and the names. 0 stands for all of a directory, each entry behind
-- its name; instead of names follows how many there may be. Of a larger directory nothing is answered: weaving that
-- many takes longer here than a second question takes. It makes no functions: making one costs more than most of what
-- happens here.
local A, call, byte = ARGV, redis.call, string.byte
local prefix, out, at, last, filled = A[1], {}, 2, #A, 0
-- Keys of nodes that are not read yet, and where each belongs.
local nodes, whose, found = {}, {}, 0
while at < last do
  local count, width = A[at] + 0, 1
  local entries
  if count > 0 then
    entries = call('HMGET', unpack(A, at + 1, at + 1 + count))
  else
    if call('HLEN', A[at + 1]) > A[at + 2] + 0 then return false end
    entries, count, width = call('HGETALL', A[at + 1]), 1, 2
  end
  for n = width, #entries, width do
    local entry = entries[n]
    if width == 2 then filled = filled + 1; out[filled] = entries[n - 1] end
    out[filled + 1], out[filled + 2] = entry, false
    filled = filled + 2
    if entry and #entry == 9 then
      local _, a, b, c, d, e, f, g, h = byte(entry, 1, 9)
      local low = ((e * 256 + f) * 256 + g) * 256 + h
      local ino
      if a + b + c + d == 0 and e < 128 then
        -- Several times as fast as formatting a number with a fraction, which the others need where a long is short.
        ino = string.format('%d', low)
      elseif a == 0 and b < 32 then
        ino = string.format('%.0f', ((b * 256 + c) * 256 + d) * 4294967296 + low)
      else
        -- Doubles hold 53 bits, inodes of the trash have 63: divide by hand.
        local limbs, parts = { a * 256 + b, c * 256 + d, e * 256 + f, g * 256 + h }, {}
        for part = 1, 3 do
          local rest = 0
          for limb = 1, 4 do
            local value = rest * 65536 + limbs[limb]
            rest = value % 10000000
            limbs[limb] = (value - rest) / 10000000
          end
          parts[part] = string.format('%07.0f', rest)
        end
        ino = string.gsub(parts[3] .. parts[2] .. parts[1], '^0+', '')
      end
      found = found + 1
      nodes[found], whose[found] = prefix .. ino, filled
    end
  end
  at = at + 2 + count
  -- One question for all directories is faster. The stack takes some 8,000 values at once.
  if found > 0 and (found >= 2000 or at >= last) then
    local attrs = call('MGET', unpack(nodes, 1, found))
    for n = 1, found do out[whose[n]] = attrs[n] end
    found = 0
  end
end
return out
