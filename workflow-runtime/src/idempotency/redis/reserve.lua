-- Takes a free key. KEYS: row. ARGV: body, owner, lease in microseconds.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local row = redis.call('HMGET', KEYS[1], 'state', 'body', 'owner', 'fence', 'since', 'until', 'completed', 'expires')
if row[1] == 'done' then
    if row[2] ~= ARGV[1] then
        return { 'other', row[2], row[5] }
    end
    return { 'done', redis.call('HGET', KEYS[1], 'outcome'), row[7], row[8] }
end
if row[1] == 'flight' and tonumber(row[6]) > now then
    if row[3] == ARGV[2] then
        return { 'new', row[4], row[5], row[6] }
    end
    if row[2] ~= ARGV[1] then
        return { 'other', row[2], row[5] }
    end
    return { 'flight', row[5], row[6] }
end
-- The server's clock numbers the claims: a later one has a higher number, also when the row was gone in between.
local fence = now
if row[4] and tonumber(row[4]) >= fence then
    fence = tonumber(row[4]) + 1
end
local ends = now + tonumber(ARGV[3])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'state', 'flight', 'body', ARGV[1], 'owner', ARGV[2],
    'fence', string.format('%.0f', fence), 'since', string.format('%.0f', now), 'until', string.format('%.0f', ends))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(tonumber(ARGV[3]) / 1000)))
return { 'new', string.format('%.0f', fence), string.format('%.0f', now), string.format('%.0f', ends) }
