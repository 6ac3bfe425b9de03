"""Key drift: on logs of agents as they were recorded, on chats changed in known ways; and what keys take."""

from __future__ import annotations

import statistics
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness import SHARED_TRACES, Cell, Table, median_ratio, say, seconds_of
from benchmarks.stack_traffic import PARTITION, SYSTEM, questions
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.levels import LEVELS, Level, level_ids
from caches.keys.rules import KeyRules
from caches.keys.structure import ALL
from caches.semantic.lemmas import ENGLISH, Lemmas
from traces.catalog import load_trace
from traces.key_drift import CAUSES, KeyDrift, key_drift
from traces.reader import ReadOptions

LOGS = ("agent_taubench_text.jsonl.gz", "agent_miniswe_text.jsonl.gz")
ROUNDS = 15
REQUESTS = 20_000
ANSWER = "x" * 400
CAPACITY_BYTES = 40_000  # a hundred answers
Body = dict[str, Any]


def in_another_order(body: Body, rng: np.random.Generator) -> Body:
    names = list(body)
    return {names[place]: body[names[place]] for place in rng.permutation(len(names))}


def in_other_characters(body: Body, rng: np.random.Generator) -> Body:
    *before, last = body["messages"]
    text = last["content"].replace(" ", str(rng.choice([" ", "  ", "\u00a0"])))
    return body | {"messages": [*before, last | {"content": unicodedata.normalize("NFD", text)}]}


def with_the_time(body: Body, rng: np.random.Generator) -> Body:
    first, *rest = body["messages"]
    line = f"Current time: 2026-11-{rng.integers(1, 31):02}T{rng.integers(0, 24):02}:{rng.integers(0, 60):02}:00Z"
    return body | {"messages": [first | {"content": f"{first['content'].splitlines()[0]}\n{line}"}, *rest]}


def with_what_is_left_out(body: Body, rng: np.random.Generator) -> Body:
    return body | {"user": f"u{rng.integers(0, 50)}"}


def in_another_form(body: Body, rng: np.random.Generator) -> Body:
    *before, last = body["messages"]
    text = f"{'please ' if rng.random() < 0.5 else ''}{last['content']}"
    return body | {"messages": [*before, last | {"content": text}]}


CHANGES: Mapping[Level, Callable[[Body, np.random.Generator], Body]] = {
    Level.ORDER: in_another_order,
    Level.ENCODING: in_other_characters,
    Level.TRACKING: with_the_time,
    Level.OTHER: with_what_is_left_out,
    Level.WORDING: in_another_form,
}


def composed(changed: frozenset[Level], requests: int, seed: int = 0) -> list[Body]:
    """The first questions of pairs by Zipf's law, all with a line of the time, half of them changed in each of the ways
    given."""
    rng, known = np.random.default_rng(seed), questions()[:600:2]
    share = np.arange(1, len(known) + 1) ** -1.0
    bodies = []
    for place in rng.choice(len(known), requests, p=share / share.sum()).tolist():
        system = f"{SYSTEM}\nCurrent time: 2026-11-30T12:00:00Z"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": known[place]}]
        body: Body = {"model": "small", "messages": messages, "temperature": 0, "max_tokens": 200}
        for level in sorted(changed, key=LEVELS.index, reverse=True):
            if rng.random() < 0.5:
                body = CHANGES[level](body, rng)
        bodies.append(body)
    return bodies


def composed_drift(changed: frozenset[Level], requests: int) -> KeyDrift:
    """As a gateway that logs levels would record it, with a request each second."""
    form_of = Lemmas(ENGLISH).form_of
    ids = [level_ids(Endpoint.CHAT, orjson.dumps(body), PARTITION, form_of) for body in composed(changed, requests)]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "log.jsonl"
        by_level = {}
        for number, level in enumerate(LEVELS):
            rows = ({"time": t, "key": one[number].hex(), "size": len(ANSWER)} for t, one in enumerate(ids))
            path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
            columns = {"time": "time", "key": "key", "size": "size"}
            by_level[level] = load_trace(path, "jsonl", ReadOptions(columns=columns))
    return key_drift(by_level, by_level[Level.OTHER], CAPACITY_BYTES)


def recorded_drift(name: str, quick: bool) -> KeyDrift | None:
    path = SHARED_TRACES / "llm" / name
    if not path.is_file():
        return None
    options = ReadOptions(sort=True, limit=50 if quick else None)
    by_level = {
        level: load_trace(path, "openai_log", ReadOptions(sort=True, limit=options.limit, key_level=level))
        for level in LEVELS
    }
    return key_drift(by_level, load_trace(path, "openai_log", options))


def drift_table(quick: bool) -> tuple[Table, float]:
    """A row for each source: the drift that each cause makes, and the hits that are won by its normalisation. And of
    the drift of chats changed in one way the share that is put down to that way, where it is smallest."""
    requests, right = 500 if quick else REQUESTS, list[float]()
    sources: dict[str, KeyDrift] = {}
    for name in LOGS:
        say(name)
        found = recorded_drift(name, quick)
        if found is not None:
            sources[name.partition("_text")[0]] = found
    for level in CHANGES:
        say(f"composed, {level}")
        found = composed_drift(frozenset({level}), requests)
        own = next(one.drift_bits for one in found.levels if one.level is level)
        right.append((own or 0.0) / found.drift_bits)
        sources[f"composed: {CAUSES[level]}"] = found
    say("composed, all")
    sources["composed: all five"] = composed_drift(frozenset(CHANGES), requests)
    rows: list[list[Cell]] = [[name, *_drift_cells(found)] for name, found in sources.items()]
    header = (
        "source",
        "requests",
        *(CAUSES[level] for level in CHANGES),
        "endless hits, raw and in all",
        f"at {CAPACITY_BYTES:,} bytes",
    )
    note = "Of a cause: drift in bits, and what its normalisation adds to the hit ratio of an endless cache."
    return Table("Key drift by cause", header, rows, note), min(right)


def _drift_cells(found: KeyDrift) -> list[Cell]:
    cells: list[Cell] = [found.requests]
    for below, level in zip(found.levels, found.levels[1:], strict=False):
        won = level.reach.hit_ratio - below.reach.hit_ratio
        cells.append(f"{level.drift_bits or 0.0:.2f}, {100.0 * won:+.1f} %")
    low, high = found.levels[0].reach, found.levels[-1].reach
    cells.append(f"{100.0 * low.hit_ratio:.1f} % and {100.0 * high.hit_ratio:.1f} %")
    if low.at_capacity is None or high.at_capacity is None:
        return [*cells, None]
    return [*cells, f"{100.0 * low.at_capacity:.1f} % and {100.0 * high.at_capacity:.1f} %"]


def cost_table(quick: bool) -> tuple[Table, float]:
    """What the key of a chat takes, in microseconds; and how many times as much with all rules."""
    raws = [orjson.dumps(body) for body in composed(frozenset(CHANGES), 100 if quick else 500)]
    bodies, lemmas = [orjson.loads(raw) for raw in raws], Lemmas(ENGLISH)
    plain, ruled = KeyRules(), KeyRules(structure=ALL)
    ways: dict[str, Callable[[], object]] = {
        "a key, all rules of structure off": lambda: [
            request_key(Endpoint.CHAT, body, PARTITION, plain) for body in bodies
        ],
        "a key, all rules of structure on": lambda: [
            request_key(Endpoint.CHAT, body, PARTITION, ruled) for body in bodies
        ],
        "keys of all levels, for the access log": lambda: [
            level_ids(Endpoint.CHAT, raw, PARTITION, lemmas.form_of) for raw in raws
        ],
        "lemmas of a question": lambda: [lemmas.form_of(body["messages"][-1]["content"]) for body in bodies],
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            taken[name].append(1e6 * seconds_of(work) / len(bodies))
    rows: list[list[Cell]] = [
        [name, f"{statistics.median(some):.1f} [{min(some):.1f}, {max(some):.1f}]"] for name, some in taken.items()
    ]
    off, on = (taken[name] for name in list(ways)[:2])
    return Table("What keys take", ("what", "µs, median [lowest, highest round]"), rows), median_ratio(on, off)
