"""The tables of the tier in Cassandra, and every statement that it runs on them.

`answer` is what a lookup reads: one row, in a partition of its own under tenant, namespace and fingerprint, so one
read finds it and tombstones beside it cannot slow that down. Nearly all rows leave by the database's own lifetime, so
files of one window of time expire together and are dropped whole, without being compacted again: time-window
compaction. `entry` says who is there, how large, and touched when. It is read slice by slice, so its rows are small,
and levelled compaction with a short grace lets what was removed go before it is read over many times. `slice` holds
what each slice was found to hold, `settings` what binds.

No row holds a null, which Cassandra would keep as a tombstone. A write has one stamp in both tables, so of two writers
the same one wins in both; and what is removed because of what was read is removed with the stamp that was read, so
that an answer stored meanwhile stays.
"""

from __future__ import annotations

from math import ceil

WINDOWS = 24  # of the longest lifetime; a few dozen keep the number of files small
GRACE_SECONDS = 10_800  # for answers: as long as Cassandra by default keeps what a node that is away has missed
SHORT_GRACE_SECONDS = 600  # for entries: one that comes back is only counted until it is removed again

_KEY = "cache = ? AND slice = ? AND tenant = ? AND namespace = ? AND name = ?"
_ANSWER_KEY = "cache = ? AND tenant = ? AND namespace = ? AND name = ?"
_ROW = "tenant, namespace, name, about, size, touched, WRITETIME(size), WRITETIME(touched)"
_SLICE = f"SELECT {_ROW} FROM entry WHERE cache = ? AND slice = ?"

TABLES_THERE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"

READ_ANSWER = f"SELECT about, body, WRITETIME(body) FROM answer WHERE {_ANSWER_KEY}"
READ_ABOUT = f"SELECT about FROM answer WHERE {_ANSWER_KEY}"
KEEP_ANSWER = (
    "INSERT INTO answer (cache, tenant, namespace, name, about, body) VALUES (?, ?, ?, ?, ?, ?) "
    "USING TTL ? AND TIMESTAMP ?"
)
REMOVE_ANSWER = f"DELETE FROM answer USING TIMESTAMP ? WHERE {_ANSWER_KEY}"

READ_SIZE = f"SELECT size FROM entry WHERE {_KEY}"
KEEP_ENTRY = (
    "INSERT INTO entry (cache, slice, tenant, namespace, name, about, size, touched) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "USING TTL ? AND TIMESTAMP ?"
)
TOUCH_ENTRY = f"UPDATE entry USING TTL ? SET touched = ? WHERE {_KEY}"
REMOVE_ENTRY = f"DELETE FROM entry USING TIMESTAMP ? WHERE {_KEY}"
READ_SLICE = f"{_SLICE} AND (tenant, namespace, name) > (?, ?, ?) LIMIT ?"
READ_PARTITION = f"{_SLICE} AND tenant = ? AND namespace = ? AND name > ? LIMIT ?"

READ_SUMS = "SELECT slice, held, used, swept FROM slice WHERE cache = ?"
KEEP_SUM = "INSERT INTO slice (cache, slice, held, used, swept) VALUES (?, ?, ?, ?, ?)"

READ_SETTINGS = "SELECT slices, capacity, ttl, warmup FROM settings WHERE cache = ?"
BEGIN_SETTINGS = "INSERT INTO settings (cache, slices, capacity, ttl, warmup) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
APPLY_SETTINGS = "UPDATE settings SET capacity = ?, ttl = ?, warmup = ? WHERE cache = ? IF slices = ?"


def tables(ceiling_seconds: float) -> dict[str, str]:
    """Statements that make the tables, by their names. ceiling_seconds: the longest lifetime that may be set."""
    minutes = max(ceil(ceiling_seconds / 60 / WINDOWS), 1)
    return {
        "answer": (
            "CREATE TABLE IF NOT EXISTS answer (cache text, tenant text, namespace text, name blob, about text, "
            "body blob, PRIMARY KEY ((cache, tenant, namespace, name))) WITH compaction = "
            "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', "
            f"'compaction_window_size': {minutes}}} AND gc_grace_seconds = {GRACE_SECONDS}"
        ),
        "entry": (
            "CREATE TABLE IF NOT EXISTS entry (cache text, slice int, tenant text, namespace text, name blob, "
            "about text, size bigint, touched bigint, PRIMARY KEY ((cache, slice), tenant, namespace, name)) "
            "WITH compaction = {'class': 'LeveledCompactionStrategy'} "
            f"AND gc_grace_seconds = {SHORT_GRACE_SECONDS}"
        ),
        "slice": (
            "CREATE TABLE IF NOT EXISTS slice (cache text, slice int, held bigint, used bigint, swept double, "
            "PRIMARY KEY (cache, slice))"
        ),
        "settings": (
            "CREATE TABLE IF NOT EXISTS settings (cache text PRIMARY KEY, slices int, capacity bigint, ttl double, "
            "warmup double)"
        ),
    }
