"""What a Redis server does in one step for a shard of the cache. Each script works on the same nine keys, which share
a hash tag and so one node of a cluster:

    1 settings  hash: capacity (binds now), aim (where it is going), ttl, warmup
    2 body      hash: id -> header and body
    3 size      hash: id -> bytes counted
    4 own       hash: id -> lifetime of its own, where it has one
    5 written   sorted set: id by the time of its write
    6 touch     sorted set: id by the number of its last touch
    7 meta      hash: touches so far, used bytes
    8 note      hash: id -> what is to be told when the entry leaves, where it has such a note
    9 left      set: notes of entries that have left, until somebody has seen to them

Ages are judged by the caller's clock. Every entry that leaves does so through `remove`, so that `used` stays the sum of
sizes.
"""

from __future__ import annotations

from caches.tiers.redis_entry import TAKEN

FORGOTTEN = "NOSETTINGS"  # begins the error of a shard that has no settings (any more)
NOTE_HEAD_BYTES = 48  # of a note; the id of its entry follows

_COMMON = """
local settings, body, size, own, written, touch, meta, note, left = unpack(KEYS)
local function remove(id)
  redis.call('HINCRBY', meta, 'used', -redis.call('HGET', size, id))
  for _, key in ipairs({body, size, own}) do redis.call('HDEL', key, id) end
  for _, key in ipairs({written, touch}) do redis.call('ZREM', key, id) end
  local noted = redis.call('HGET', note, id)
  if noted then
    redis.call('HDEL', note, id)
    redis.call('SADD', left, noted)
  end
end
local function used() return tonumber(redis.call('HGET', meta, 'used') or '0') end
local function setting(name) return tonumber(redis.call('HGET', settings, name)) end
local function evict(limit, most)
  local gone = 0
  while used() > limit and gone < most do
    remove(redis.call('ZRANGE', touch, 0, 0)[1])
    gone = gone + 1
  end
  return gone
end
"""

_BEGUN = f"""{_COMMON}
if redis.call('EXISTS', settings) == 0 then return redis.error_reply('{FORGOTTEN} apply first') end
"""

# ARGV: id, now. Returns the entry or false, and how many expired.
LOOKUP = (
    _BEGUN
    + """
local born = redis.call('ZSCORE', written, ARGV[1])
if not born then return {false, 0} end
local ttl, mine = setting('ttl'), tonumber(redis.call('HGET', own, ARGV[1]))
if mine and mine < ttl then ttl = mine end
if ARGV[2] - born >= ttl then
  remove(ARGV[1])
  return {false, 1}
end
redis.call('ZADD', touch, redis.call('HINCRBY', meta, 'touches', 1), ARGV[1])
return {redis.call('HGET', body, ARGV[1]), 0}
"""
)

# ARGV: id, now. Returns whether a lookup would find it.
HOLDS = (
    _BEGUN
    + """
local born = redis.call('ZSCORE', written, ARGV[1])
if not born then return 0 end
local ttl, mine = setting('ttl'), tonumber(redis.call('HGET', own, ARGV[1]))
if mine and mine < ttl then ttl = mine end
if ARGV[2] - born >= ttl then return 0 end
return 1
"""
)

# ARGV: id, now, written, own lifetime or '', bytes, entry, seconds to keep the shard, note or ''. Returns taken (1),
# larger than the capacity (0) or too old (-1), and how many were evicted.
STORE = (
    _BEGUN
    + """
local id, ttl, mine = ARGV[1], setting('ttl'), tonumber(ARGV[4])
if mine and mine < ttl then ttl = mine end
if ARGV[2] - ARGV[3] >= ttl then return {-1, 0} end
if redis.call('HEXISTS', size, id) == 1 then remove(id) end
local capacity = setting('capacity')
if tonumber(ARGV[5]) > capacity then return {0, 0} end
redis.call('HSET', body, id, ARGV[6])
redis.call('HSET', size, id, ARGV[5])
if mine then redis.call('HSET', own, id, ARGV[4]) end
if ARGV[8] ~= '' then redis.call('HSET', note, id, ARGV[8]) end
redis.call('ZADD', written, ARGV[3], id)
redis.call('ZADD', touch, redis.call('HINCRBY', meta, 'touches', 1), id)
redis.call('HINCRBY', meta, 'used', ARGV[5])
local gone = evict(capacity, math.huge)
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[7]) end
return {1, gone}
"""
)

# ARGV: ids. Returns how many of them were there.
DELETE = (
    _COMMON
    + """
local gone = 0
for _, id in ipairs(ARGV) do
  if redis.call('HEXISTS', size, id) == 1 then
    remove(id)
    gone = gone + 1
  end
end
return gone
"""
)

# ARGV: condition, whether to remove, ids. Returns how many of them are there and fulfil the condition.
CLEAR = (
    _COMMON
    + TAKEN
    + """
local condition, found = cjson.decode(ARGV[1]), 0
local every = next(condition) == nil  -- then no body has to be read
for place = 3, #ARGV do
  local id = ARGV[place]
  local there = redis.call('HEXISTS', size, id) == 1
  if there and (every or taken(redis.call('HGET', body, id), condition)) then
    if ARGV[2] == '1' then remove(id) end
    found = found + 1
  end
end
return found
"""
)

# ARGV: capacity, ttl, warmup, whether to keep what others have set. Returns what binds now.
APPLY = (
    _COMMON
    + """
if ARGV[4] == '0' or redis.call('EXISTS', settings) == 0 then
  local capacity = tonumber(ARGV[1])
  if used() > capacity then capacity = math.max(capacity, math.min(setting('capacity') or capacity, used())) end
  redis.call('HSET', settings, 'capacity', capacity, 'aim', ARGV[1], 'ttl', ARGV[2], 'warmup', ARGV[3])
end
return redis.call('HMGET', settings, 'capacity', 'ttl', 'warmup')
"""
)

# ARGV: now, most to remove. Returns whether there is more to do, how many expired and how many were evicted.
TEND = (
    _BEGUN
    + """
local most, ttl, old = tonumber(ARGV[2]), setting('ttl'), 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', written, '-inf', ARGV[1] - ttl, 'LIMIT', 0, most)) do
  remove(id)
  old = old + 1
end
local aim = setting('aim')
local gone = evict(aim, most - old)
redis.call('HSET', settings, 'capacity', math.max(aim, used()))
local more = (old + gone == most and (used() > aim or old > 0)) and 1 or 0
return {more, old, gone}
"""
)

# Returns what binds now, entries and used bytes.
READ = (
    _BEGUN
    + """
local found = redis.call('HMGET', settings, 'capacity', 'ttl', 'warmup')
return {found[1], found[2], found[3], redis.call('ZCARD', touch), used()}
"""
)

# ARGV: notes, as if their entries had left just now.
LEAVE = (
    _COMMON
    + """
for _, gone in ipairs(ARGV) do redis.call('SADD', left, gone) end
"""
)

# ARGV: most to look at. Returns how many it looked at, and notes of entries that have left; where an entry is there
# with the same note, stored again or not left at all, the note is dropped.
LEFT = (
    _COMMON
    + f"""
local some, gone = redis.call('SRANDMEMBER', left, ARGV[1]), {{}}
for _, one in ipairs(some) do
  if redis.call('HGET', note, string.sub(one, {NOTE_HEAD_BYTES + 1})) == one then
    redis.call('SREM', left, one)
  else
    gone[#gone + 1] = one
  end
end
return {{#some, gone}}
"""
)

# ARGV: notes that have been seen to.
SEEN_TO = (
    _COMMON
    + """
for _, gone in ipairs(ARGV) do redis.call('SREM', left, gone) end
"""
)
