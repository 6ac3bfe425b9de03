"""Recording and alert rules, by Prometheus's own tool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers import require

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = ("rules.yaml", "alerts.yaml")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [require("promtool"), *arguments]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def alerts() -> list[dict[str, Any]]:
    return [rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]]


def test_rules_are_well_formed() -> None:
    done = promtool("check", "rules", *RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_do_what_they_are_meant_to() -> None:
    done = promtool("test", "rules", "tests.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_of_prometheus_name_rules_that_are_there() -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_where_it_fires_and_where_it_does_not() -> None:
    """All but two see a case of each; of these the other cases are in tests with other series."""
    fires, silent = set(), set()
    for test in read("tests.yaml")["tests"]:
        for case in test.get("alert_rule_test", ()):
            (fires if case.get("exp_alerts") else silent).add(case["alertname"])
    names = {alert["alert"] for alert in alerts()}
    assert fires == names
    assert names - silent <= {"SetpointStageOverBudget"}  # its case has a stage that is not late beside one that is


def test_every_alert_tells_a_person_what_is_wrong() -> None:
    for alert in alerts():
        told = alert["annotations"]
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert told["summary"].endswith("."), alert["alert"]
        assert len(told["description"].split()) >= 10, alert["alert"]


def test_the_page_on_observability_has_every_alert_and_recorded_series() -> None:
    page = (FOLDER.parents[1] / "docs" / "observability.md").read_text(encoding="utf-8")
    names = [alert["alert"] for alert in alerts()]
    names += [rule["record"] for group in read("rules.yaml")["groups"] for rule in group["rules"]]
    assert [name for name in names if f"`{name}`" not in page] == []
    assert set(re.findall(r"`(Setpoint[A-Z]\w+)`", page)) == {alert["alert"] for alert in alerts()}
