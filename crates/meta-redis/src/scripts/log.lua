-- The change log: its list of lines, the number of its last line, and a number. With a fourth argument answers the
-- number of the last line, how many lines there are, the number before those that follow, and at most so many lines
-- behind the number. Without it removes the lines up to the number.
local list, last, number, limit = ARGV[1], tonumber(redis.call('GET', ARGV[2]) or '0'), tonumber(ARGV[3]), ARGV[4]
local count = redis.call('LLEN', list)
local before = last - count
if not limit then
  if number > before then redis.call('LTRIM', list, string.format('%.0f', number - before), '-1') end
  return false
end
local skipped = math.max(number - before, 0)
local lines = {}
if tonumber(limit) > 0 then
  lines = redis.call('LRANGE', list, string.format('%.0f', skipped), string.format('%.0f', skipped + limit - 1))
end
return { string.format('%.0f', last), count, string.format('%.0f', before + skipped), lines }
