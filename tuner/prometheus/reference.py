"""The page docs/signal-presets.md: every signal, and every preset with its queries."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.prometheus.preset_queries import Preset, presets
from tuner.signals import SIGNALS, SignalSpec


def signal_reference() -> str:
    known = presets().values()
    rows, lines = map(_signal_row, SIGNALS.values()), map(_summary, known)
    return "".join(
        (_INTRODUCTION, *rows, "\n## Presets\n\n", *lines, *(part for one in known for part in _preset(one)))
    )


def _signal_row(spec: SignalSpec) -> str:
    span = f"{spec.low:g} to {spec.high:g}" if math.isfinite(spec.high) else f"at least {spec.low:g}"
    having = ", ".join(name for name, preset in presets().items() if spec.name in preset.queries) or "none"
    return f"| `{spec.name}` | {spec.unit} | {span} | {spec.max_age_seconds:g} s | {having} | {spec.meaning} |\n"


def _summary(preset: Preset) -> str:
    return f"- [`{preset.name}`](#{preset.name}): {preset.about}\n"


def _preset(preset: Preset) -> Iterator[str]:
    yield f"\n## {preset.name}\n\n{preset.about} The names are those of {preset.names}\n"
    if preset.notes:
        yield "\n" + "".join(f"- {note}\n" for note in preset.notes)
    yield "\n```toml\n[signals.queries]\n"
    for signal, query in preset.queries.items():
        yield f"{signal} = '''\n{query}'''\n"
    yield "```\n"


_INTRODUCTION = """# Signal presets

What Setpoint can ask a Prometheus for, and how. [Signals](signals.md) says how to choose and change it. A value outside
its range, or older than its age, is missing.

This page is generated from the code by `make docs`.

## Signals

| signal | unit | range | oldest | presets | meaning |
|---|---|---|---|---|---|
"""
