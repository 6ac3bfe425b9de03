"""Key drift: its formula by hand, its parts, and where it comes from."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import orjson
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from api.cli.trace_info import info
from caches.errors import InputError
from caches.keys.fields import Endpoint
from caches.keys.levels import LEVELS, Level, level_ids
from caches.keys.partitions import partition_of
from caches.semantic.lemmas import Lemmas
from tests.traces.access_records import BEGIN, SECRET, bypass, cached
from tests.traces.tiny import tiny_trace
from traces.access.parquet_log import ParquetAccessLog
from traces.access.secret import key_hash
from traces.access.stream_log import entry_of
from traces.catalog import load_trace
from traces.formats.access_log import has_levels
from traces.key_drift import key_drift
from traces.reader import ReadOptions
from traces.trace import Trace

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

APP = typer.Typer()
APP.command()(info)
SYSTEM = "Be brief.\nCurrent time: {}"


def trace_of(keys: list[int], size: int = 10) -> Trace:
    return tiny_trace(keys, list(range(len(keys))), [size] * len(keys))


def levels_of(*keys: list[int]) -> dict[Level, Trace]:
    """The keys of the levels from the lowest; the last ones as often as it takes."""
    return {level: trace_of(keys[min(place, len(keys) - 1)]) for place, level in enumerate(LEVELS)}


def test_the_formula_by_hand() -> None:
    # Key A came as a, a, b, c; key B as d, d. H_A = 1/2 * 1 + 2 * 1/4 * 2 = 1.5 bits, H_B = 0; 4/6 of 1.5 is 1 bit.
    raw, normalised = [0, 0, 1, 2, 3, 3], [0, 0, 0, 0, 1, 1]
    found = key_drift(levels_of(raw, normalised), trace_of(normalised))
    assert found.drift_bits == pytest.approx(1.0)
    assert [level.drift_bits for level in found.levels] == [None, pytest.approx(1.0), 0.0, 0.0, 0.0, 0.0]
    assert [level.reach.keys for level in found.levels] == [4, 2, 2, 2, 2, 2]
    assert [level.reach.hit_ratio for level in found.levels[:2]] == pytest.approx([2 / 6, 4 / 6])
    assert found.in_use is not None
    assert found.in_use.hit_ratio == pytest.approx(4 / 6)


KEYS = st.lists(st.integers(0, 11), min_size=1, max_size=60)


@UNHURRIED
@given(KEYS)
def test_drift_is_the_mean_of_the_entropies_within_a_key(raw: list[int]) -> None:
    """Twelve spellings of four keys, of two; each sum worked out key by key."""
    raw = np.unique(raw, return_inverse=True)[1].tolist()
    upper = [key // 3 for key in raw]
    top = [key // 2 for key in upper]

    def dense(keys: list[int]) -> list[int]:
        return np.unique(keys, return_inverse=True)[1].tolist()

    def within(low: list[int], high: list[int]) -> float:
        total = 0.0
        for key in set(high):
            spellings = [one for one, of in zip(low, high, strict=True) if of == key]
            shares = [spellings.count(one) / len(spellings) for one in set(spellings)]
            total += len(spellings) / len(low) * -sum(share * math.log2(share) for share in shares)
        return total

    found = key_drift(levels_of(raw, dense(upper), dense(top)), trace_of(raw))
    assert found.levels[1].drift_bits == pytest.approx(within(raw, upper), abs=1e-9)
    assert found.levels[2].drift_bits == pytest.approx(within(upper, top), abs=1e-9)
    assert found.drift_bits == pytest.approx(within(raw, top), abs=1e-9)
    for level in found.levels[1:]:
        assert level.drift_bits is not None
        assert 0.0 <= level.drift_bits <= math.log2(12)


def test_two_spellings_are_a_bit_at_most() -> None:
    """So two encodings of the same keys cannot raise their entropy by more, however they mix."""
    raw = [0, 1, 2, 3, 0, 1, 2, 3]
    found = key_drift(levels_of(raw, [key // 2 for key in raw]), trace_of(raw))
    assert found.drift_bits == pytest.approx(1.0)


def test_hits_at_a_capacity_are_those_of_an_lru_cache() -> None:
    # a, b, a, b in a cache of one entry never hit; as one key they hit three times
    raw, merged = [0, 1, 0, 1], [0, 0, 0, 0]
    found = key_drift(levels_of(raw, merged), trace_of(raw), capacity_bytes=10)
    assert [level.reach.at_capacity for level in found.levels[:2]] == [0.0, 0.75]
    assert [level.reach.hit_ratio for level in found.levels[:2]] == [0.5, 0.75]


def test_levels_of_other_requests_are_refused_and_other_keys_left_out() -> None:
    levels = levels_of([0, 1])
    assert key_drift(levels, trace_of([0, 1, 2])).in_use is None
    with pytest.raises(InputError, match="key drift: got 3 requests at order, expected 2"):
        key_drift({**levels, Level.ORDER: trace_of([0, 1, 2])}, trace_of([0, 1]))


# --- from logs -------------------------------------------------------------------------------------------------------


def body(question: str, hour: int = 10) -> dict[str, object]:
    system = {"role": "system", "content": SYSTEM.format(f"2026-11-30T{hour}:00Z")}
    return {"model": "m", "messages": [system, {"role": "user", "content": question}]}


BODIES = [
    body("How do I reset it?"),
    dict(reversed(body("How do I reset it?").items())),  # only the log of a gateway shows this
    body("How do I  reset it?"),
    body("How do I reset it?", hour=11),
    body("How do we reset it?"),
    body("Who wrote it?"),
]


def keys_of(path: Path) -> list[int]:
    return [load_trace(path, options=ReadOptions(key_level=level)).num_keys for level in LEVELS]


def test_levels_of_a_request_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [one | {"timestamp": place, "response": "answer"} for place, one in enumerate(BODIES)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    assert keys_of(path) == [5, 5, 4, 3, 3, 2]
    result = CliRunner().invoke(APP, [str(path), "--json", "--png", str(tmp_path / "a.png"), "--capacity-bytes", "99"])
    told = orjson.loads(result.stdout)["key_drift"]
    assert [level["reach"]["keys"] for level in told["levels"]] == [5, 5, 4, 3, 3, 2]
    assert [level["level"] for level in told["levels"]] == [level.value for level in LEVELS]
    assert told["levels"][0]["cause"] is None
    assert told["in_use"]["keys"] == 4  # this log's key looks past white space
    assert told["requests"] == 6
    assert told["levels"][-1]["reach"]["at_capacity"] == pytest.approx(4 / 6)  # all of it fits
    shown = CliRunner().invoke(APP, [str(path), "--png", str(tmp_path / "a.png")])
    assert "Drift in all: " in shown.stdout
    assert "time, tracking" in shown.stdout


def test_prompts_that_are_no_chat_are_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    odd = [[1, 2], [{"type": "text", "text": "a"}], [{"role": "user", "content": 7}], list[object]()]
    prompts: list[object] = ["a  b", "a b", *odd]
    rows = [{"timestamp": place, "prompt": one, "response": "x", "model": ""} for place, one in enumerate(prompts)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    assert keys_of(path)[:3] == [6, 6, 5]


def access_log(folder: Path, with_levels: bool) -> Path:
    form_of, partition = Lemmas("en").form_of, partition_of()
    records = []
    for place, one in enumerate(BODIES):
        ids = level_ids(Endpoint.CHAT, orjson.dumps(one), partition, form_of) if with_levels else None
        records.append(cached(place, str(ids and ids[4]), levels=ids))
    log = ParquetAccessLog(folder, secret=SECRET)
    log.write([*records, bypass(7)], BEGIN)
    log.close()
    return folder


def test_levels_of_an_access_log(tmp_path: Path) -> None:
    folder = access_log(tmp_path / "log", with_levels=True)
    assert has_levels(folder)
    assert keys_of(folder) == [6, 5, 4, 3, 3, 2]
    assert load_trace(folder).num_keys == 3
    result = CliRunner().invoke(APP, [str(folder), "--json", "--png", str(tmp_path / "a.png")])
    assert orjson.loads(result.stdout)["key_drift"]["in_use"]["keys"] == 3


def test_of_a_log_without_levels_nothing_is_said(tmp_path: Path) -> None:
    folder = access_log(tmp_path / "log", with_levels=False)
    assert not has_levels(folder)
    result = CliRunner().invoke(APP, [str(folder), "--json", "--png", str(tmp_path / "a.png")])
    assert orjson.loads(result.stdout)["key_drift"] is None
    with pytest.raises(InputError, match="got no records"):
        load_trace(folder, options=ReadOptions(key_level=Level.RAW))


def test_a_format_with_one_key_has_no_levels(tmp_path: Path) -> None:
    path = tmp_path / "trace.keys"
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match="has one key for each request"):
        load_trace(path, "keys", ReadOptions(requests_per_second=1.0, key_level=Level.RAW))


def test_an_entry_of_a_stream_has_one_key() -> None:
    hashed = key_hash(SECRET)
    levels = tuple(b"level %d" % place for place in range(len(LEVELS)))
    assert entry_of(cached(0.0, "k", levels=levels), hashed) == entry_of(cached(0.0, "k"), hashed)
