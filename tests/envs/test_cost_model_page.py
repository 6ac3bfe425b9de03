"""The numbers in docs/cost-model.md, computed."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from envs.reward import Prices
from envs.serving import Serving, backend_of, gpu_seconds, load_profile
from envs.units import GIB
from tuner.config import TunerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text(encoding="utf-8")
PRICES = Prices()
PROMPT, OUTPUT = 1_020, 129


def miss_usd(profile: str) -> float:
    backend = backend_of(load_profile(profile), Serving())
    seconds = gpu_seconds(backend, np.array([PROMPT]), np.array([OUTPUT]))[0]
    return float(seconds) * PRICES.gpu_usd_per_hour / 3600


def test_what_a_miss_is_worth_in_memory() -> None:
    miss = miss_usd("qwen2.5-7b-a100")
    assert miss == pytest.approx(0.00007, rel=0.01)
    assert miss / PRICES.memory_usd_per_gib_hour * 1024 == pytest.approx(17.8, abs=0.05)


def test_short_answers_cost_next_to_nothing_to_hold() -> None:
    miss = miss_usd("qwen2.5-7b-a100")
    week = 2_000 / GIB * 168 * PRICES.memory_usd_per_gib_hour
    assert week == pytest.approx(1.25e-6, rel=0.01)
    assert miss / week == pytest.approx(56, abs=0.5)


@pytest.mark.parametrize(("profile", "mib", "misses"), [("qwen2.5-7b-a100", 55.8, 3), ("qwen-7b-a100", 510, 22)])
def test_kv_blocks_cost_misses_every_hour(profile: str, mib: float, misses: int) -> None:
    held = PROMPT * load_profile(profile).kv_bytes_per_token
    assert held / 2**20 == pytest.approx(mib, abs=0.05)
    assert round(held / GIB * PRICES.memory_usd_per_gib_hour / miss_usd(profile)) == misses


def test_an_hour_of_age() -> None:
    outdated = 1 - math.exp(-3_600 / PRICES.answer_lifetime_seconds)
    assert outdated == pytest.approx(0.006, abs=0.0005)
    assert miss_usd("qwen2.5-7b-a100") / (outdated * PRICES.stale_answer_usd) == pytest.approx(23, abs=1)
    assert (1 - math.exp(-1)) * PRICES.stale_answer_usd > miss_usd("qwen2.5-7b-a100")


def test_the_defaults_are_those_of_the_code() -> None:
    for name, value in PRICES.model_dump().items():
        assert f"| `{name}` | {value:,} |" in PAGE or f"| `{name}` | {value:,.0f} (" in PAGE, name
    for name in ("qwen2.5-7b-a100", "qwen-7b-a100"):
        p = load_profile(name)
        row = (
            f"| `{name}` | {p.kv_bytes_per_token:,} | {p.prefill_tokens_per_second:,.0f} | "
            f"{p.seconds_per_output_token} | {p.max_sequences} |"
        )
        assert row in PAGE


def test_the_settings_shown_are_accepted() -> None:
    shown = PAGE.partition("```toml\n")[2].partition("```")[0]
    assert TunerConfig.model_validate(tomllib.loads(shown)).prices.stale_answer_usd == 0.01
