"""The section [warming], and the ratio of a tier that it goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.gateway.building import built
from api.gateway.config import load_serve_config
from api.gateway.warming_settings import WarmingSettings
from caches.errors import InputError
from caches.hot_keys import HotRule
from caches.warming import WarmRule


def test_what_is_not_said_is_as_without_a_file() -> None:
    gateway = built(load_serve_config(None, {"gateway.upstream": "http://a"}), "file", {})
    assert gateway.service.settings.warming == WarmingSettings()


async def test_what_is_said_counts(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[gateway]\nupstream = "http://a"\n[tiers.memory]\nwarmup_ratio = 0.2\n'
        "[warming]\nevery_seconds = 5\nper_second = 7\ngate_seconds = 8\nleast_used = 0.5\nfrom_backend = true\n"
        "backend_calls = 3\nmost_body_bytes = 1000\nbusy_p99_seconds = 2.5\nbusy_calls = 0\nhalf_life_seconds = 60\n"
        "most_keys = 10\nimported_per_second = 9\n",
        encoding="utf-8",
    )
    gateway = built(load_serve_config(file, {}), "file", {})
    assert gateway.service.settings.warming == WarmingSettings(
        every_seconds=5.0,
        rule=WarmRule(per_second=7.0, gate_seconds=8.0, least_used=0.5, backend_calls=3),
        hot=HotRule(60.0, 10),
        from_backend=True,
        most_body_bytes=1_000,
        busy_p99_seconds=2.5,
        busy_calls=0,
        imported_per_second=9.0,
    )
    assert (await gateway.places["memory"].tier.settings()).warmup_ratio == 0.2


def test_what_cannot_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    for line, told in (("per_second = 0", "warming.per_second"), ("least_used = 2", "warming.least_used")):
        file.write_text(f"[warming]\n{line}\n", encoding="utf-8")
        with pytest.raises(InputError, match=told):
            load_serve_config(file, {})
