-- Extends a claim. KEYS: row. ARGV: owner, fence, lease in microseconds.
local row = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fence')
if row[1] ~= 'flight' or row[2] ~= ARGV[1] or row[3] ~= ARGV[2] then
    return 0
end
local t = redis.call('TIME')
local lease = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', t[1] * 1000000 + t[2] + lease))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(lease / 1000)))
return 1
