-- Records an outcome. KEYS: row. ARGV: owner, fence, time to live in microseconds, outcome.
local row = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fence')
if row[2] ~= ARGV[1] or row[3] ~= ARGV[2] then
    return 0
end
if row[1] == 'done' then
    return 1 -- asked again, because the answer was lost
end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ttl = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'state', 'done', 'outcome', ARGV[4],
    'completed', string.format('%.0f', now), 'expires', string.format('%.0f', now + ttl))
redis.call('HDEL', KEYS[1], 'until')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(ttl / 1000)))
return 1
