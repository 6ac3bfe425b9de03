"""What a Redis server does in one step for a stream log.

A stream is one hash, so that it is evicted and expires as a whole, and lies on one node of a cluster:

    name, writer     under which it was opened, by whom
    state, why       as of StreamState; what a stream that failed tells
    n, bytes         events so far, and their bytes
    until, wanted    ms of the server's clock: when the writer counts as dead; until when somebody counts as reading
    1, 2, …          the events

Time is the server's, the same for all gateways.
"""

from __future__ import annotations

_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
# A server that is full takes no write: then all can still read.
_STATE = (
    _NOW
    + """
local function state()
  local found = redis.call('HMGET', KEYS[1], 'state', 'until')
  if found[1] == 'running' and now >= tonumber(found[2]) then
    redis.pcall('HSET', KEYS[1], 'state', 'abandoned')
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return 'abandoned'
  end
  return found[1]
end
"""
)
# Of the writer: ARGV 1 ms to keep what has ended, 2 ms of a lease, 3 writer.
_OWN = (
    _STATE
    + """
if state() ~= 'running' or redis.call('HGET', KEYS[1], 'writer') ~= ARGV[3] then return 'fenced' end
local function live()
  redis.call('HSET', KEYS[1], 'until', now + ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[1] + ARGV[2])
end
"""
)

# ARGV: as of the writer, 4 name.
OPEN = (
    _NOW
    + """
local there = redis.call('HMGET', KEYS[1], 'writer', 'state')
if there[1] then return there[1] == ARGV[3] and there[2] == 'running' and 'ok' or 'fenced' end
redis.call('HSET', KEYS[1], 'name', ARGV[4], 'writer', ARGV[3], 'state', 'running', 'n', 0, 'bytes', 0)
redis.call('HSET', KEYS[1], 'until', now + ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1] + ARGV[2])
return 'ok'
"""
)

# ARGV: as of the writer, 4 most bytes, 5 events before these, events. Nothing is written where they do not fit.
APPEND = (
    _OWN
    + """
local found = redis.call('HMGET', KEYS[1], 'n', 'bytes')
local n, bytes, offset = tonumber(found[1]), tonumber(found[2]), tonumber(ARGV[5])
if offset > n then return 'gap' end
local new = {}
for place = 6 + n - offset, #ARGV do
  n = n + 1
  bytes = bytes + #ARGV[place]
  new[#new + 1] = n
  new[#new + 1] = ARGV[place]
end
if bytes > tonumber(ARGV[4]) then return 'long' end
for place = 1, #new, 2 do redis.call('HSET', KEYS[1], new[place], new[place + 1]) end
redis.call('HSET', KEYS[1], 'n', n, 'bytes', bytes)
live()
return 'ok'
"""
)

# ARGV: as of the writer.
RENEW = _OWN + "live() return 'ok'"

# ARGV: as of the writer, 4 state, 5 why.
END = (
    _STATE
    + """
if redis.call('HGET', KEYS[1], 'writer') ~= ARGV[3] then return 'fenced' end
local is = state()
if is ~= 'running' then return is == ARGV[4] and 'ok' or 'fenced' end
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'why', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 'ok'
"""
)

# ARGV: 1 ms to keep what has ended, 2 events that are known, 3 most to return, 4 ms that a read counts.
READ = (
    _STATE
    + """
local name = redis.call('HGET', KEYS[1], 'name')
if not name then return false end
local now_state, found = state(), redis.call('HMGET', KEYS[1], 'n', 'why', 'wanted')
if now_state == 'running' and tonumber(found[3] or '0') < now + ARGV[4] / 2 then
  redis.pcall('HSET', KEYS[1], 'wanted', now + ARGV[4])
end
local events, after = {}, tonumber(ARGV[2])
for number = after + 1, math.min(tonumber(found[1]), after + ARGV[3]) do
  events[#events + 1] = redis.call('HGET', KEYS[1], number)
end
return {name, now_state, found[1], found[2] or '', events}
"""
)

WANTED = _NOW + "return tonumber(redis.call('HGET', KEYS[1], 'wanted') or '0') > now and 1 or 0"

# Of the name: KEYS[1] says which stream runs under it. ARGV: id, ms of a lease.
POINT = """
local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
UNPOINT = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
