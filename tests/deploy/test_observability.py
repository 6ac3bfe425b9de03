"""docs/observability.md against what daemon and gateway tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from api.gateway.stage_budget import SHARES
from tests.api.gateway.conftest import ask, chat, configured, emulated, send
from tuner.exporting.metric_table import MEASURES

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
ALL = """
[tiers.disk]
enabled = false
[tuning]
enabled = true
[access_log]
place = "{folder}"
[tracing]
endpoint = "http://127.0.0.1:9/v1/traces"
sample_ratio = 0.0
[freshness]
feedback = true
[streaming]
enabled = true
[resilience]
enabled = true
negative_seconds = 30.0
[resilience.token_rate]
tokens_per_second = 1000000.0
"""
UNITS = {"_seconds": "s", "_bytes": "bytes", "_ratio": "ratio"}


def row(name: str, kind: str, unit: str, labels: Sequence[str], told: str) -> str:
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind} | {unit or '—'} | {shown or '—'} | {told} |"


def gateway_rows(upstream: str, folder: Path) -> list[str]:
    """Of a gateway that has everything which counts something."""
    file, rows = folder / "serve.toml", []
    with configured(upstream, file, ALL.format(folder=folder)) as address:
        for _ in range(2):
            ask(address, chat("asked twice"))
        page = send("GET", f"{address}/metrics").text
    for family in text_string_to_metric_families(page):
        if family.name.endswith("_created"):  # of the client's library
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for one in family.samples for label in one.labels if label != "le")
        unit = next((unit for end, unit in UNITS.items() if family.name.endswith(end)), "")
        rows.append(row(name, family.type, unit, list(labels), family.documentation))
    return rows


def missing(rows: Sequence[str]) -> list[str]:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    return [one for one in rows if one not in page]


def test_every_metric_of_the_daemon_is_there_with_unit_and_meaning() -> None:
    assert missing([row(one.name, one.kind.value, one.unit, one.all_labels, one.help) for one in MEASURES]) == []


def test_every_metric_of_the_gateway_is_there_with_unit_and_meaning(tmp_path: Path) -> None:
    with emulated() as backend:
        assert missing(gateway_rows(backend.address, tmp_path)) == []


def test_no_metric_is_there_that_nobody_tells(tmp_path: Path) -> None:
    with emulated() as backend:
        told = gateway_rows(backend.address, tmp_path)
    told += [row(one.name, one.kind.value, one.unit, one.all_labels, one.help) for one in MEASURES]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("| `setpoint_") and line not in told] == []


def test_the_shares_of_the_budget_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for stage, share in SHARES.items():
        assert f"| `{stage.value}` | {100 * share:.0f} % |" in page
