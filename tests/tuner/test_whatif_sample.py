"""A what-if on the requests of a share of the keys: the miniature, its adjustment, and how near it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.uncertainty import Resampling
from api.report.page import render
from api.report.whatif import whatif_page
from caches.errors import InputError
from envs.interval import COLUMN, STATS, column
from traces.catalog import read_trace
from traces.reader import ReadOptions
from tuner.config import TunerConfig, load_tuner_config
from tuner.whatif import Ask, what_if
from tuner.whatif_current import parse_wish
from tuner.whatif_result import WhatIf
from tuner.whatif_sample import adjusted, miniature

REQUESTS = 120_000


def config_of(**sections: Any) -> TunerConfig:
    overrides: dict[str, object] = {
        "trace.interval_seconds": 60.0,
        "knobs.ttl_seconds.high": 3600.0,
        "knobs.ttl_seconds.default": 600.0,
        "serving.profile": "qwen-7b-a100",
        "serving.replicas": 40,
        "run.workers": 1,
    }
    return load_tuner_config(None, Path("nowhere"), {}, overrides | sections)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 keys, the k-th asked for in proportion to 1 / sqrt(k): many count, none of them alone."""
    random = np.random.default_rng(0)
    weight = 1.0 / np.sqrt(np.arange(1, 20_001))
    key = random.choice(len(weight), REQUESTS, p=weight / weight.sum())
    table = {"time": np.arange(REQUESTS) * 0.05, "key": key, "size": 200 + key % 1800}
    path = tmp_path_factory.mktemp("trace") / "even.parquet"
    pq.write_table(pa.table(table), path)
    return path


def asked(path: Path, at_most: int | None) -> WhatIf:
    trace = read_trace(path, None, ReadOptions(at_most=at_most))
    ask = Ask(parse_wish("size=10%,ttl=10min"), sizes=6, ttls=4, resampling=Resampling(200, 0))
    return what_if(config_of(), trace, ask)


@pytest.fixture(scope="module")
def both(path: Path) -> tuple[WhatIf, WhatIf]:
    return asked(path, None), asked(path, REQUESTS // 4)


def test_a_quarter_of_the_keys_says_about_the_same(both: tuple[WhatIf, WhatIf]) -> None:
    whole, part = both
    assert part.subject.requests == whole.subject.requests == REQUESTS
    assert part.subject.footprint_bytes == pytest.approx(whole.subject.footprint_bytes, rel=0.05)
    np.testing.assert_allclose(part.axes[0].values, whole.axes[0].values, rtol=0.05)
    assert part.hit_ratio.error is not None
    off = np.abs(part.hit_ratio.values - whole.hit_ratio.values)
    assert (off < 1.5 * part.hit_ratio.error + 0.002).all()
    assert off.max() < 0.025
    assert part.hit_ratio.values.min() >= 0
    np.testing.assert_allclose(part.usd_per_1000.values, whole.usd_per_1000.values, rtol=0.03)
    for one, other in ((part.current, whole.current), (part.best, whole.best)):
        assert one.hit_ratio == pytest.approx(other.hit_ratio, abs=0.02)
        assert one.usd_per_1000 == pytest.approx(other.usd_per_1000, rel=0.03)
        assert one.usd_per_day == pytest.approx(other.usd_per_day, rel=0.03)
        assert one.settings.cache_size == pytest.approx(other.settings.cache_size, rel=0.05)
    assert part.saving.percent == pytest.approx(whole.saving.percent, abs=1.5)
    assert part.saving.usd_per_day == pytest.approx(whole.saving.usd_per_day, rel=0.2)


def test_it_says_that_it_is_an_estimate(both: tuple[WhatIf, WhatIf]) -> None:
    whole, part = both
    assert whole.sampled is None
    assert part.sampled is not None
    assert part.sampled.samples == 8
    assert part.sampled.share == pytest.approx(0.25 / 8)
    assert not part.proven
    notes = " ".join(part.notes)
    assert "Of the trace's 120,000 requests those of 25.000% of the keys were read" in notes
    assert "Waiting is that of 640 sequences in place of 2,560" in notes
    assert "Which keys were drawn moves the saving as well" in notes
    assert part.subject.serving["replicas"] == 40
    page = render(whatif_page(part, "2026-11-29"))
    assert "on the same requests for 25.000% of the keys, and scaled up to all 120,000 requests of even" in page
    assert "scaled up" not in render(whatif_page(whole, "2026-11-29"))


def test_hits_are_what_is_missing_to_the_lookups_by_hand() -> None:
    """8 lookups with 6 hits, 3 of them outdated; 5 were expected: the 2 misses stay, and half of the hits."""
    rows = np.zeros((1, 2, STATS))
    values = {"requests": 8, "hits": 6, "hit_ratio": 0.75, "stale_answers": 3, "staleness_usd": 0.3, "compute_usd": 2}
    for name, value in values.items():
        rows[0, :, COLUMN[name]] = value
    rows[0, 1, COLUMN["hits"]] = 0  # nothing to go by: what is outdated stays as it was
    found = adjusted(rows, np.array([5.0, 10.0]))
    shown = {name: column(found, name)[0].tolist() for name in values}
    assert shown.pop("staleness_usd") == pytest.approx([0.15, 0.3])
    assert shown == {
        "requests": [5.0, 10.0],
        "hits": [3.0, 2.0],
        "hit_ratio": [0.6, 0.2],
        "stale_answers": [1.5, 3.0],
        "compute_usd": [2.0, 2.0],
    }
    assert adjusted(rows, None) is rows


def test_a_miniature_by_hand() -> None:
    config = config_of(**{"knobs.cache_size.high": 1_000.0, "knobs.cache_size.default": 500.0})
    small = miniature(config, 0.05)
    size = small.knobs.cache_size
    assert (size.low, size.default, size.high) == (None, 25.0, 50.0)
    assert small.cache.warmup_candidates == round(0.05 * config.cache.warmup_candidates)
    assert (small.serving.replicas, small.serving.max_sequences) == (2, 64)
    tiny = miniature(config, 0.01)
    assert (tiny.serving.replicas, tiny.serving.max_sequences) == (1, 26)  # of 25.6
    assert miniature(config, 1e-6).serving.max_sequences == 1


def test_what_cannot_be_made_smaller_is_refused() -> None:
    with pytest.raises(InputError, match=r"cache.kind: got prefix, expected response"):
        miniature(config_of(**{"cache.kind": "prefix"}), 0.5)
    with pytest.raises(InputError, match=r"serving.cache_in_vram: got true, expected false"):
        miniature(config_of(**{"serving.cache_in_vram": True}), 0.5)
