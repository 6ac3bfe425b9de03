"""Presets of queries, and what a settings file makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from api.gateway.arm_metrics import COUNTED, HELD, SEEN
from api.gateway.backend_metrics import COUNTERS, GAUGES
from api.gateway.metrics import GatewayMetrics, TierCounts
from caches.errors import InputError
from caches.place import PlaceStats
from caches.stats import CacheStats
from tuner.config_loader import load_config
from tuner.prometheus.preset_queries import presets
from tuner.prometheus.source import Asked, asked_by, prometheus_signals
from tuner.signal_sections import SignalsConfig
from tuner.signals import SIGNALS


class Settings(BaseModel):
    signals: SignalsConfig = SignalsConfig()


def settings(folder: Path, text: str) -> SignalsConfig:
    file = folder / "setpoint.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(Settings, file, {}, {}).signals


def asked(config: SignalsConfig) -> dict[str, Asked]:
    return {one.signal: one for one in asked_by(config)}


def test_presets_ask_for_known_signals() -> None:
    assert list(presets()) == ["dcgm", "litellm", "lmcache", "redis", "setpoint", "setpoint-arms", "vllm"]
    for preset in presets().values():
        assert preset.queries
        assert set(preset.queries) <= set(SIGNALS)
        assert all("$labels" in query for query in preset.queries.values())
        assert preset.about.endswith(".")
        assert preset.names.endswith(".")
        assert all(note.endswith(".") for note in preset.notes)


def test_every_signal_has_a_preset() -> None:
    assert {name for preset in presets().values() for name in preset.queries} == set(SIGNALS)


def test_metrics_of_the_presets_for_our_gateway_are_those_of_the_gateway() -> None:
    metrics = GatewayMetrics()
    metrics.answered("chat", "hit-l1", 0.1)
    page = metrics.page([TierCounts("memory", CacheStats(0, 0, 0, 0, 0, 0, 0), PlaceStats())]).decode()
    known = set(re.findall(r"^(\w+)[{ ]", page, flags=re.MULTILINE))
    known |= {f"setpoint_upstream_{name}" for name, _ in GAUGES}
    known |= {f"setpoint_upstream_{name}_total" for name, _ in COUNTERS}
    ours = [
        one
        for preset in ("setpoint", "setpoint-arms")
        for one in asked(SignalsConfig(preset=(preset,), slots=1)).values()
    ]
    known |= {f"setpoint_arm_{name}_total" for name, _ in COUNTED}
    known |= {f"setpoint_arm_{name}" for name, _ in HELD}
    known |= {f"setpoint_arm_{name}_bucket" for name, _, _ in SEEN}
    read = {selector.partition("{")[0] for one in ours if one.reads is not None for selector in one.reads.selectors()}
    assert len(read) >= 20
    assert read <= known


def test_a_file_with_everything(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        """
        [signals]
        prometheus = "http://127.0.0.1:9090/prom"
        preset = ["redis", "vllm"]
        labels = { all = 'cluster="a"', redis = 'job="cache",' }
        window_seconds = 60
        slots = 8
        required = ["hit_ratio"]

        [signals.queries]
        entries = "sum(my_entries{$labels})"
        evictions_per_second = ""
        """,
    )
    found = asked(config)
    assert found["used_bytes"].query == 'sum(redis_memory_used_bytes{cluster="a",job="cache"})'
    assert found["entries"] == Asked("entries", "settings", 'sum(my_entries{cluster="a"})', found["entries"].reads)
    assert found["utilisation"].query == (
        'sum(vllm:num_requests_running{cluster="a"}) / (8 * count(vllm:num_requests_running{cluster="a"}))'
    )
    assert "[60s]" in found["requests_per_second"].query
    assert "evictions_per_second" not in found
    assert list(found) == [name for name in SIGNALS if name in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('preset = ["vlm"]', "signals.preset[0]: got 'vlm', expected one of dcgm, litellm"),
        ('queries = { hits = "up" }', "names of signals, of which 'hits' is none: requests_per_second"),
        ('required = ["hits"]', "names of signals, of which 'hits' is none: requests_per_second"),
        ('queries = { entries = "sum(" }', "signals.queries.entries: got 'sum(', expected PromQL: unclosed"),
        (
            'queries = { entries = "up > $limit" }',
            "signals.queries.entries: got $limit, expected one of $labels, $slots",
        ),
        ("labels = { vlm = 'a=\"b\"' }", "signals.labels.vlm: expected one of all, dcgm"),
        ("labels = { all = 'a' }", "signals.labels: got 'a', expected matchers such as job="),
        ("window_seconds = 0", "signals.window_seconds: got 0"),
        ("timeout_seconds = 0", "signals.timeout_seconds: got 0"),
        ("slots = 0", "signals.slots: got 0"),
        ("presets = []", "unknown key signals.presets"),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        asked_by(settings(tmp_path, f"[signals]\n{text}\n"))
    assert words in str(caught.value)


def test_without_a_prometheus_there_is_no_source() -> None:
    with pytest.raises(InputError, match=r"signals\.prometheus: not set, expected the URL"):
        prometheus_signals(SignalsConfig())


def test_a_password_is_not_shown_with_the_settings() -> None:
    assert "secret" not in repr(SignalsConfig(prometheus="http://a:secret@b:9090"))


def test_the_token_comes_from_a_variable() -> None:
    assert SignalsConfig().token({}) is None
    config = SignalsConfig(token_env="PROM_TOKEN")
    assert config.token({"PROM_TOKEN": " abc\n"}) == "abc"
    with pytest.raises(InputError, match="'PROM_TOKEN', expected the name of a variable with a token"):
        config.token({"PROM_TOKEN": " "})


def test_the_settings_on_the_page_of_signals_are_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "signals.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    found = asked(settings(tmp_path, text))
    assert found["used_bytes"].query == 'sum(my_cache_bytes{cluster="eu-1"})'
    assert found["waiting_requests"].query == 'sum(vllm:num_requests_waiting{cluster="eu-1",job="vllm"})'
    assert found["vram_ratio"].origin == "dcgm"


def test_queries_on_the_page_of_presets_can_be_copied(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "signal-presets.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == len(presets())
    for text, preset in zip(blocks, presets().values(), strict=True):
        assert {one: query.strip() for one, query in settings(tmp_path, text).queries.items()} == preset.queries
