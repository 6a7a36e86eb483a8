-- One page of a hash or sorted set, with the fields of the same name in other hashes: a limit, the command that pages,
-- its cursor, the key, then the keys of the others.
local limit, command, cursor, first = unpack(ARGV)
local page = redis.call(command, first, cursor, 'COUNT', limit)
local found, out, width = page[2], {}, #ARGV - 2
local fields = {}
for n = 1, #found, 2 do
  fields[#fields + 1] = found[n]
  local at = (#fields - 1) * width
  out[at + 1], out[at + 2] = found[n], found[n + 1]
end
for other = 5, #ARGV do
  -- At most 1000 at a time.
  for from = 1, #fields, 1000 do
    local values = redis.call('HMGET', ARGV[other], unpack(fields, from, math.min(from + 999, #fields)))
    for n = 1, #values do out[(from + n - 2) * width + other - 2] = values[n] end
  end
end
return { page[1], out }
