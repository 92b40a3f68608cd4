-- Frees a key. KEYS: row. ARGV: owner, fence.
local row = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fence')
if row[1] == 'flight' and row[2] == ARGV[1] and row[3] == ARGV[2] then
    redis.call('DEL', KEYS[1])
end
return 1
