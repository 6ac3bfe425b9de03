"""The techniques: each a name, its family, and the settings that turn it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from benchmarks.key_matchers import MOST_EDITS, Questions
from benchmarks.technique_runs import merged
from benchmarks.technique_traffic import Settings
from benchmarks.technique_wordings import meanings
from caches.keys.structure import TRACKING_LABELS, TRACKING_PARAMETERS
from caches.semantic.bucket_fitting import fit_buckets
from caches.semantic.bucket_map import save_bucket_map
from caches.semantic.wordllama_embedder import WordLlamaEmbedder

OFF, SHIPPED, ALL, PAYING = "all off", "as shipped", "all on", "those that pay, together"
KEYS, MEANING, EVICTION, ADMISSION, FRESHNESS = "keys", "meaning", "eviction", "admission", "freshness"
STREAMING, RESILIENCE, TOGETHER = "streaming", "resilience", "together"
# Where a family is run. Elsewhere it changes nothing but lots that fall otherwise: where there is room nothing goes.
WHERE: Mapping[str, tuple[str, ...]] = {
    KEYS: ("wordings",),
    MEANING: ("wordings", "crowded"),
    EVICTION: ("crowded",),
    ADMISSION: ("wordings", "changing", "crowded", "troubled"),
    FRESHNESS: ("wordings", "changing", "troubled"),
    STREAMING: ("troubled",),
    RESILIENCE: ("changing", "troubled"),
    TOGETHER: ("wordings", "changing", "crowded", "troubled"),
}
BUCKETS, QUICK_BUCKETS = 512, 64
PATIENCE_SECONDS = 10.0
EVICTIONS = ("lru-2", "lfu", "gdsf", "s3-fifo", "sieve", "w-tinylfu")
ADMISSIONS = ("second-hit", "tinylfu", "cost-aware")


@dataclass(frozen=True)
class Technique:
    """settings: over those of the workload, with all that is off stated."""

    name: str
    family: str
    settings: Settings


def _everywhere(**rules: Any) -> Settings:
    return {"namespaces": {"*": rules}}


def _memory(**rules: Any) -> Settings:
    return {"tiers": {"memory": rules}}


def _semantic(**rules: Any) -> Settings:
    return {"tiers": {"semantic": {"enabled": True, **rules}}}


def _resilience(**rules: Any) -> Settings:
    return {"resilience": {"enabled": True, **rules}}


def _freshness(**rules: Any) -> Settings:
    return {"freshness": rules}


# Stated, so that `all off` stays what it is when a default changes.
NOTHING: Settings = {
    "tiers": {"memory": {"eviction_policy": "lru", "admission": "all"}, "semantic": {"enabled": False}},
    "namespaces": {
        "*": {
            "line_ends": False,
            "spaces": False,
            "clock": "exact",
            "tracking_fields": False,
            "addresses": False,
            "ignored_lines": (),
            "ignored_parameters": (),
            "freshness": "fixed",
        }
    },
    "freshness": {"feedback": False, "on_shift": "off"},
    "streaming": {"enabled": False},
    "resilience": {"enabled": False},
}
STRUCTURE: dict[str, Settings] = {
    "line ends": _everywhere(line_ends=True),
    "spaces": _everywhere(spaces=True),
    "clock by the day": _everywhere(clock="day"),
    "tracking fields": _everywhere(tracking_fields=True),
    "ignored lines": _everywhere(ignored_lines=TRACKING_LABELS),
    "addresses": _everywhere(addresses=True, ignored_parameters=TRACKING_PARAMETERS),
}
EVERY_RULE: Settings = reduce(merged, STRUCTURE.values())
HAZARD = _everywhere(freshness="hazard")
# Nothing is answered by meaning: the tier is there for its embedder only.
EMBEDDER_ONLY = merged(_semantic(), _everywhere(tiers=("memory",)))
FRESH: dict[str, Settings] = {
    "by load": _everywhere(freshness="load"),
    "by quality": _everywhere(freshness="quality"),
    "by sampling": _everywhere(freshness="sampling"),
    "hazard": HAZARD,
    "hazard, 5 % asked again, up to 10 x": merged(HAZARD, _freshness(asked_again_share=0.05, longest_share=10.0)),
    "drift shortens": merged(EMBEDDER_ONLY, _freshness(on_shift="shorten")),
    "unsure answers not kept": _freshness(least_mean_logprob=-2.3),
    "feedback": _freshness(feedback=True),
}
STREAMS: Settings = {"streaming": {"enabled": True}}
SMALLER = {"fallback_model": "small", "fallback_upstream": "http://smaller", "patience_seconds": PATIENCE_SECONDS}
# For few slots: by fewer answers, over a longer time, than where a busy service would notice.
NOTICED = {"latency": {"whole_p95_seconds": 6.0, "least_answers": 10, "window_seconds": 20.0}}
RATE: Settings = {"token_rate": {}}  # what the backend of the workload can do: `run` fills it in
STALE, NEGATIVE = {"stale_grace_seconds": 3_600.0}, {"negative_seconds": 30.0}
WHOLE = _resilience(**STALE, **SMALLER, **NOTICED, **RATE, **NEGATIVE)
GUARDS: dict[str, Settings] = {
    "stale answers": _resilience(**STALE),
    "smaller model, patience": _resilience(**SMALLER),
    "slow backend noticed, stale": _resilience(**STALE, **NOTICED),
    "token rate, stale": _resilience(**STALE, **RATE),
    "negatives": _resilience(**NEGATIVE),
    "resilience, whole": WHOLE,
}
EVERYTHING = reduce(
    merged,
    (
        EVERY_RULE,
        _semantic(),
        _memory(eviction_policy="gdsf", admission="tinylfu"),
        HAZARD,
        _freshness(on_shift="shorten", least_mean_logprob=-2.3, feedback=True),
        STREAMS,
        WHOLE,
    ),
)


def techniques(folder: Path, quick: bool) -> list[Technique]:
    """Each alone, and all together. folder: for what has to be fitted beforehand."""
    families: dict[str, dict[str, Settings]] = {
        KEYS: {**STRUCTURE, "all of these": EVERY_RULE},
        MEANING: _by_meaning(_fitted(folder, QUICK_BUCKETS if quick else BUCKETS)),
        EVICTION: {name: _memory(eviction_policy=name) for name in EVICTIONS},
        ADMISSION: {name: _memory(admission=name) for name in ADMISSIONS},
        FRESHNESS: FRESH,
        STREAMING: {"streams kept": STREAMS},
        RESILIENCE: GUARDS,
        TOGETHER: {ALL: EVERYTHING},
    }
    return [
        Technique(OFF, TOGETHER, NOTHING),
        Technique(SHIPPED, TOGETHER, {}),
        *(
            Technique(name if family == TOGETHER else f"{family}: {name}", family, merged(NOTHING, settings))
            for family, members in families.items()
            for name, settings in members.items()
        ),
    ]


def _by_meaning(buckets: Path) -> dict[str, Settings]:
    return {
        "semantic": _semantic(),
        "semantic, signatures": _semantic(neighbours="signatures"),
        "semantic, buckets and edits": _semantic(neighbours="buckets", bucket_map=str(buckets), most_edits=MOST_EDITS),
        "semantic, lemmas": _semantic(lemmas="en"),
    }


def _fitted(folder: Path, buckets: int) -> Path:
    """On the questions of the pairs, so that buckets are judged at their best."""
    path = folder / "buckets.npz"
    vectors = Questions(list(meanings())).vectors
    save_bucket_map(fit_buckets(vectors, WordLlamaEmbedder.name, buckets), path)
    return path


def together(picked: Sequence[Technique]) -> Technique:
    """Several at once, each for what it alone turns on."""
    return Technique(PAYING, TOGETHER, reduce(merged, (_own(one.settings, NOTHING) for one in picked), NOTHING))


def _own(settings: Settings, under: Settings) -> dict[str, Any]:
    """What settings say that those under them do not."""
    own: dict[str, Any] = {}
    for name, value in settings.items():
        there = under.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            value = _own(value, there)
            if not value:
                continue
        elif value == there:
            continue
        own[name] = value
    return own
