"""The page of a daemon that was put together from settings, beside a real gateway, in real time."""

from __future__ import annotations

import threading
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.gateway.conftest import ask, chat, emulated
from tests.api.gateway.tuned import tuned
from tests.servers import free_port
from tuner.config import TunerConfig
from tuner.starting import started

PATIENT_SECONDS = 60.0


def read(port: int) -> dict[str, float]:
    """By name, summed over labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_a_daemon_shows_what_it_measured_at_the_port_of_its_settings(tmp_path: Path, mlruns: Path) -> None:
    port = free_port()
    with emulated() as backend, tuned(backend.address) as front:
        control = {
            "gateway": front.address,
            "ledger": f"sqlite:///{tmp_path / 'setpoint.db'}",
            "interval_seconds": 2.0,
            "poll_seconds": 0.1,
            "timeout_seconds": 15.0,
            "metrics_port": port,
        }
        tracking = {"uri": f"sqlite:///{mlruns / 'mlflow.db'}"}
        config = TunerConfig.model_validate({"control": control, "tracking": tracking})
        made = started(config, tmp_path, {})
        thread = threading.Thread(target=made.daemon.run)
        thread.start()
        try:
            deadline, found = time.monotonic() + PATIENT_SECONDS, read(port)
            while not found.get("setpoint_tuner_requests_total") and time.monotonic() < deadline:
                ask(front.address, chat("asked again and again"))
                time.sleep(0.1)
                found = read(port)
        finally:
            made.daemon.stop()
            thread.join()
            made.close()
    assert found["setpoint_tuner_lease_held"] == 1
    assert found["setpoint_tuner_interval_seconds"] == 2
    assert found["setpoint_tuner_share_ratio"] == 1
    assert found["setpoint_tuner_requests_total"] >= 1
    assert found["setpoint_tuner_cache_size_bytes"] == 1e7
    assert abs(found["setpoint_tuner_last_good_interval_timestamp_seconds"] - time.time()) < PATIENT_SECONDS
    assert found["setpoint_tuner_tick_duration_seconds_count"] >= 2
    with pytest.raises(OSError, match="refused"):
        read(port)
