"""Going through the entries of a Redis server that is ours alone: a partition's, and of these what is selected."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from caches.tiers.redis_connection import Connection, reached
from caches.tiers.redis_entry import TAKEN, condition
from caches.tiers.selection import Selection

SCAN = 1_000
AT_ONCE_IN_SCRIPT = 128  # entries, for which others wait about a millisecond
GLOB = re.compile(rb"[*?\[\]\\^-]")

# KEYS: names of entries. ARGV: condition, whether to remove. Returns how many of them are there and fulfil it.
_CLEAR = (
    TAKEN
    + """
local condition, found = cjson.decode(ARGV[1]), 0
for _, name in ipairs(KEYS) do
  local entry = redis.call('GETRANGE', name, 0, 1023)
  if entry ~= '' and not string.find(entry, '\\n', 1, true) then entry = redis.call('GET', name) end
  if entry ~= '' and taken(entry, condition) then
    if ARGV[2] == '1' then redis.call('UNLINK', name) end
    found = found + 1
  end
end
return found
"""
)


class Clearing:
    """Of the tier of that name. start: of the names of all entries."""

    def __init__(self, connection: Connection, name: str, start: bytes) -> None:
        self._redis: Any = connection  # its answers are bytes; their types say str too
        self._name, self._start = name, start

    async def steps(self, selection: Selection, *, remove: bool) -> AsyncIterator[int]:
        """How many are selected, step by step. While the server's table grows or shrinks, one may be counted twice;
        none that is there all the time is left out."""
        match = GLOB.sub(rb"\\\g<0>", self._start + selection.partition.prefix) + b"*"
        cursor: Any = None
        while cursor != 0:
            async with reached(self._name):
                cursor, names = await self._redis.scan(cursor or 0, match=match, count=SCAN)
            for first in range(0, len(names), AT_ONCE_IN_SCRIPT):
                async with reached(self._name):
                    found = await self._step(selection, names[first : first + AT_ONCE_IN_SCRIPT], remove)
                yield found

    async def _step(self, selection: Selection, names: list[bytes], remove: bool) -> int:
        if selection.whole:
            return int(await self._redis.unlink(*names)) if remove else len(names)
        async with self._redis.pipeline(transaction=False) as asked:
            asked.execute_command("CLIENT NO-TOUCH", "ON")  # of the connection, which others use after us
            asked.eval(_CLEAR, len(names), *names, condition(selection), int(remove))
            asked.execute_command("CLIENT NO-TOUCH", "OFF")
            _, found, _ = await asked.execute(raise_on_error=False)  # a server before Redis 7.2 knows no such command
        if isinstance(found, Exception):
            raise found
        return int(found)
