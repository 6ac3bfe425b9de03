"""Queries in PromQL as they are written in presets and settings: placeholders, and the series that they read.

A query answers with the time at which it was evaluated, not with that of the samples behind it, and a rate goes on for
a whole window after its exporter is gone. So the age of a value is asked for apart, of the series that the query
reads, which its syntax tree names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser

from caches.errors import InputError

PLACE = "setpoint_place"  # a label
PLACEHOLDER = re.compile(r"\$(\w+)")
OPERATORS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
BELOW = ("expr", "lhs", "rhs", "vector_selector", "param")  # where nodes of the tree keep others


@dataclass(frozen=True)
class Reads:
    """The series behind a query. selector: of a leaf, as PromQL; else parts. either: of `or`, one part is enough; of
    everything else all are needed."""

    selector: str | None = None
    parts: tuple[Reads, ...] = ()
    either: bool = False

    def selectors(self) -> Iterator[str]:
        if self.selector is not None:
            yield self.selector
        for part in self.parts:
            yield from part.selectors()

    def oldest(self, sampled: Mapping[str, float | None]) -> float | None:
        """When the oldest sample was taken that has a part in the value, Unix time; None where a series that is needed
        has no sample. sampled: by selector."""
        if self.selector is not None:
            return sampled[self.selector]
        times = [part.oldest(sampled) for part in self.parts]
        known = [time for time in times if time is not None]
        return min(known) if known and (self.either or len(known) == len(times)) else None

    def lacking(self, sampled: Mapping[str, float | None]) -> tuple[str, ...]:
        """The selectors without a sample because of which there is no oldest one; each once."""
        if self.oldest(sampled) is not None:
            return ()
        if self.selector is not None:
            return (self.selector,)
        return tuple(dict.fromkeys(one for part in self.parts for one in part.lacking(sampled)))


def placeholders(query: str) -> frozenset[str]:
    return frozenset(PLACEHOLDER.findall(query))


def filled(query: str, values: Mapping[str, str]) -> str:
    """With a value for each placeholder `$name`; `$labels` stands last in its braces, where it may be empty."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], query)


def check_matchers(place: str, matchers: str) -> None:
    """InputError unless this is what stands between the braces of a selector, as `job="vllm"`. place: in settings."""
    try:
        promql_parser.parse(f"x{{{matchers}}}")
    except ValueError as error:
        raise InputError(f'{place}: got {matchers!r}, expected matchers such as job="vllm": {error}') from error


def series_read(place: str, query: str) -> Reads:
    """InputError where this is no PromQL or names no series. place: where it was written, for the error."""
    try:
        tree = promql_parser.parse(query)
    except ValueError as error:
        raise InputError(f"{place}: got {query!r}, expected PromQL: {error}") from error
    reads = _reads(tree)
    if reads is None:
        raise InputError(f"{place}: got {query!r}, expected a query that reads a series")
    return reads


def age_query(selector: str) -> str:
    """When the oldest of the newest samples of these series was taken, Unix time."""
    return f"min(timestamp({selector}))"


def union(queries: Sequence[str]) -> str:
    """All of them as one; PLACE says of each series of the answer which query it belongs to. They have to give vectors,
    as age_query does."""
    return " or ".join(f'label_replace({query}, "{PLACE}", "{place}", "", "")' for place, query in enumerate(queries))


def duration(seconds: float) -> str:
    """As PromQL writes it, which knows no fractions."""
    return f"{seconds:.0f}s" if float(seconds).is_integer() else f"{round(seconds * 1000)}ms"


def _reads(node: Any) -> Reads | None:
    if isinstance(node, promql_parser.VectorSelector):
        return Reads(_selector(node))
    below = [getattr(node, name, None) for name in BELOW] + list(getattr(node, "args", None) or ())
    parts = tuple(reads for one in below if isinstance(one, promql_parser.Expr) and (reads := _reads(one)) is not None)
    if len(parts) < 2:
        return parts[0] if parts else None
    return Reads(parts=parts, either=str(getattr(node, "op", "")) == "or")


def _selector(node: promql_parser.VectorSelector) -> str:
    """Of the series now, whatever the offset: what stood there an hour ago says nothing about whether it still does."""
    matchers = ",".join(
        f"{one.name}{OPERATORS[str(one.op).rpartition('.')[2]]}{_quoted(one.value)}" for one in node.matchers.matchers
    )
    return f"{node.name or ''}{{{matchers}}}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
