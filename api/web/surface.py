"""The what-if surface of the page: what every size and lifetime would have cost, and where the cache is now."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.units import readable, usd
from api.report.page import PageTable, Picture
from caches.knobs import KnobSettings

CELL, TOP = 22, 30  # pixels: height of a cell, and of the labels above; those at the left have their room by live.css
BEST, HERE = "best", "now"
MADE_BY = "setpoint whatif TRACE --json > whatif.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _Axis(_Part):
    unit: str
    values: tuple[float, ...]


class _Surface(_Part):
    values: tuple[tuple[float, ...], ...]


class _Settings(_Part):
    cache_size: float
    ttl_seconds: float
    warmup_ratio: float


class _Priced(_Part):
    settings: _Settings
    usd_per_1000: float
    safe: bool


class _Subject(_Part):
    trace: str
    requests: int


class Stored(_Part):
    """As much of a what-if as is shown. axes: of size and lifetime."""

    subject: _Subject
    axes: tuple[_Axis, _Axis]
    usd_per_1000: _Surface
    best: _Priced
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """picture, table: None where there is nothing to show, and `note` says why and what to do."""

    picture: Picture | None
    table: PageTable | None
    note: str


def surface_of(path: Path | None, now: KnobSettings | None) -> Shown:
    """now: the settings of the cache, to be marked."""
    if path is None:
        return Shown(None, None, f"None yet. Make one with {MADE_BY}, and name the file as whatif in [api].")
    try:
        stored = Stored.model_validate_json(path.read_bytes())
        _check(stored)
    except OSError as error:
        return Shown(None, None, f"{path} cannot be read: {error.strerror}. Make it with {MADE_BY}.")
    except (ValidationError, ValueError):
        return Shown(None, None, f"{path} is not what setpoint whatif prints. Make it anew with {MADE_BY}.")
    marks = _marks(stored, now)
    said = f"{stored.subject.requests:,} requests of {stored.subject.trace}. {' '.join(stored.sentences[:2])}"
    if now is not None and _is_outside(stored, now):
        said += " The settings now lie outside of what was tried; the mark is at the nearest."
    alt = "A heat map of cost by cache size (rows) and lifetime (columns). The table has the figures."
    return Shown(Picture("\n".join(_drawn(stored, marks)), alt), _table(stored, marks), said)


def amount(value: float, unit: str) -> str:
    """As people read it. unit: "entries" where every response counts 1."""
    return f"{value:,.0f} {unit}" if unit == "entries" else readable(value, unit)


def _check(stored: Stored) -> None:
    sizes, ttls = (one.values for one in stored.axes)
    if len(stored.usd_per_1000.values) != len(sizes) or {len(row) for row in stored.usd_per_1000.values} != {len(ttls)}:
        raise ValueError("the surface does not fit its axes")
    if min(*sizes, *ttls) <= 0:
        raise ValueError("axes have values above 0")


def _marks(stored: Stored, now: KnobSettings | None) -> dict[tuple[int, int], list[str]]:
    """Of the nearest cells, by ratio."""
    places = [(BEST, stored.best.settings.cache_size, stored.best.settings.ttl_seconds)]
    if now is not None:
        places.append((HERE, now.cache_size, now.ttl_seconds))
    marks: dict[tuple[int, int], list[str]] = {}
    for name, size, ttl in places:
        cell = (_nearest(stored.axes[0], size), _nearest(stored.axes[1], ttl))
        marks.setdefault(cell, []).append(name)
    return marks


def _is_outside(stored: Stored, now: KnobSettings) -> bool:
    places = zip(stored.axes, (now.cache_size, now.ttl_seconds), strict=True)
    return any(not min(axis.values) <= value <= max(axis.values) for axis, value in places)


def _nearest(axis: _Axis, value: float) -> int:
    return min(range(len(axis.values)), key=lambda i: abs(math.log(axis.values[i] / max(value, 1e-12))))


def _drawn(stored: Stored, marks: dict[tuple[int, int], list[str]]) -> Iterator[str]:
    """The cheaper, the stronger its colour; sizes grow upwards."""
    sizes, ttls = stored.axes
    rows, columns = len(sizes.values), len(ttls.values)
    wide, flat = 100.0 / columns, sorted({value for row in stored.usd_per_1000.values for value in row})
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" class="indented" width="100%" '
        f'height="{TOP + rows * CELL + 4}" font-size="12.5" fill="currentColor">'
    )
    every = max(1, math.ceil(columns / 4))
    for column in range(0, columns, every):
        yield _label(f"{wide * (column + 0.5):.2f}%", TOP - 10, amount(ttls.values[column], ttls.unit), "middle")
    for row in range(rows):
        y = TOP + (rows - 1 - row) * CELL
        if row % max(1, math.ceil(rows / 8)) == 0:
            yield _label("-8", y + CELL / 2 + 4, amount(sizes.values[row], sizes.unit), "end")
        for column in range(columns):
            dear = flat.index(stored.usd_per_1000.values[row][column]) / max(len(flat) - 1, 1)
            x = wide * column
            yield (
                f'<rect x="{x:.3f}%" y="{y}" width="{wide:.3f}%" height="{CELL}" fill="var(--accent)" '
                f'fill-opacity="{0.9 - 0.85 * dear:.3f}" stroke="var(--paper)" stroke-width="1"/>'
            )
            if names := marks.get((row, column)):
                yield from _mark(f"{x + wide / 2:.3f}%", y + CELL / 2, names)
    yield "</svg>"


def _mark(x: str, y: float, names: list[str]) -> Iterator[str]:
    if BEST in names:
        yield f'<circle cx="{x}" cy="{y}" r="8" fill="none" stroke="var(--paper)" stroke-width="5"/>'
        yield f'<circle cx="{x}" cy="{y}" r="8" fill="none" stroke="var(--second)" stroke-width="2.5"/>'
    if HERE in names:
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="var(--ink)" stroke="var(--paper)" stroke-width="1.5"/>'


def _label(x: str, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y:g}" text-anchor="{anchor}" fill="var(--quiet)">{text}</text>'


def _table(stored: Stored, marks: dict[tuple[int, int], list[str]]) -> PageTable:
    sizes, ttls = stored.axes
    rows = []
    for row, size in enumerate(sizes.values):
        cells = []
        for column, value in enumerate(stored.usd_per_1000.values[row]):
            names = marks.get((row, column), [])
            cells.append(f"{usd(value)} ({', '.join(names)})" if names else usd(value))
        rows.append((amount(size, sizes.unit), *cells))
    columns = ("size \\ TTL", *(amount(one, ttls.unit) for one in ttls.values))
    return PageTable("USD per 1,000 requests by size and TTL, without slow requests", columns, tuple(rows))
