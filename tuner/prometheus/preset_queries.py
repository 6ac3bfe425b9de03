"""Named sets of queries for what people run. They are data in `presets/` beside this, one TOML file for each; what of
them a settings file uses becomes one query for each signal."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from caches.errors import InputError
from tuner.signal_sections import EVERY, SignalsConfig
from tuner.signals import SIGNALS

OWN = "settings"  # where a query comes from that no preset has


@dataclass(frozen=True)
class Preset:
    """about: what it is for. names: of whose metrics, in which versions. queries: by signal, with placeholders."""

    name: str
    about: str
    names: str
    notes: tuple[str, ...]
    queries: Mapping[str, str]


@dataclass(frozen=True)
class Chosen:
    """The query of a signal. origin: the name of a preset, or OWN. text: with placeholders still in it."""

    signal: str
    origin: str
    text: str

    @property
    def place(self) -> str:
        """Where it is written, for errors."""
        return f"signals.queries.{self.signal}" if self.origin == OWN else f"preset {self.origin}, {self.signal}"


@cache
def presets() -> Mapping[str, Preset]:
    """All that there are, by name in alphabetical order."""
    folder = resources.files("tuner.prometheus") / "presets"
    found = [(file.name.removesuffix(".toml"), file) for file in folder.iterdir() if file.name.endswith(".toml")]
    return {name: _preset(name, file.read_text(encoding="utf-8")) for name, file in sorted(found)}


def chosen_queries(config: SignalsConfig) -> dict[str, Chosen]:
    """By signal, in the order of SIGNALS. InputError where a preset is not known."""
    texts: dict[str, Chosen] = {}
    for position, name in enumerate(config.preset):
        if name not in presets():
            known = ", ".join(presets())
            raise InputError(f"signals.preset[{position}]: got {name!r}, expected one of {known}")
        for signal, text in presets()[name].queries.items():
            texts.setdefault(signal, Chosen(signal, name, text))
    for signal, text in config.queries.items():
        texts[signal] = Chosen(signal, OWN, text)
    return {signal: texts[signal] for signal in SIGNALS if signal in texts and texts[signal].text.strip()}


def labels_of(config: SignalsConfig, origin: str) -> str:
    """What `$labels` stands for in the queries of a preset, or of the settings."""
    unknown = [name for name in config.labels if name != EVERY and name not in presets()]
    if unknown:
        known = ", ".join((EVERY, *presets()))
        raise InputError(f"signals.labels.{unknown[0]}: expected one of {known}")
    given = (config.labels.get(EVERY, ""), config.labels.get(origin, ""))
    return ",".join(text.strip().strip(",") for text in given if text.strip())


def _preset(name: str, text: str) -> Preset:
    tables = tomllib.loads(text)
    queries = {signal: query.strip() for signal, query in tables["queries"].items()}
    return Preset(name, tables["about"], tables["names"], tuple(tables.get("notes", ())), queries)
