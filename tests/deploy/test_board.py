"""Every query of the board for Grafana, put to a real Prometheus that scrapes a real daemon and a real gateway."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from agents.policy import Ghosts
from tests.api.gateway.conftest import ask, chat, configured, emulated
from tests.api.gateway.tuned import QUIET
from tests.servers import free_port, is_ready, require, running
from tests.tuner.loops import LARGE, SMALL, Bench, Blind, HandPolicies, policy
from tuner.control import ControlLoop
from tuner.exporting.metering import Meter, Overheard
from tuner.exporting.metrics import Terms
from tuner.exporting.page import MetricsPage
from tuner.loop.closing import Looked
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState, WishKind

DEPLOY = Path(__file__).parents[2] / "deploy"
PATIENT_SECONDS = 60.0
SCRAPE = "500ms"
# the stages of requests are timed whether or not spans are sent, and these are not: nobody is at that port
TUNED = '[tuning]\nenabled = true\n[tracing]\nendpoint = "http://127.0.0.1:9/v1/traces"\nsample_ratio = 0.0\n'


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("board", DEPLOY / "grafana" / "board.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "board", module)  # for its dataclasses
        spec.loader.exec_module(module)
    return module


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "setpoint.json").read_text(encoding="utf-8"))
    return found


def queries() -> dict[str, str]:
    """By panel and letter, with what Grafana would put in place of its variables."""
    found = {}
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", "1m").replace("$cache", "shadow")
            found[f"{panel['title']}, {target['refId']}"] = expr
    return found


def test_the_file_is_what_the_script_makes() -> None:
    """`python deploy/grafana/board.py` writes it."""
    assert (DEPLOY / "grafana" / "setpoint.json").read_text(encoding="utf-8") == script().text()


def test_every_panel_says_what_it_shows() -> None:
    panels = [panel for panel in board()["panels"] if panel["type"] != "row"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
    assert not re.search(r"\$(?!__rate_interval|cache\b)\w+", "".join(queries().values()))


class Seeing(Blind):
    """A watch whose key stream says the same of each interval; two ghosts, at what the cache costs and at half."""

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        traffic = np.array([300.0, 5.0, 0.1, 0.5, 0.1, 100.0, 10.0])
        ghosts = Ghosts(np.eye(2, 3), np.array([[0.1], [0.05]]), np.zeros((2, 1), np.bool_))
        return Looked(now_seconds, keys=KeysSeen(traffic, np.nan, np.full(6, np.nan), ghosts))


@contextmanager
def tuner_page(folder: Path) -> Iterator[int]:
    """Port of a daemon that had an experiment, which was rolled back."""
    with ExitStack() as stack:
        page = MetricsPage("shadow", "127.0.0.1", 0)
        stack.callback(page.close)
        bench, seen = Bench(folder, policies=HandPolicies(policy(1, LARGE), policy(2, SMALL))), Overheard(Seeing())
        meter = Meter(bench.ledger, page, Terms(60.0, 10.0, None), seen)
        loop = ControlLoop(bench.cache, bench.ledger, bench.policies, seen, bench.rules, "one", 120.0)
        for interval in range(9):
            if interval == 7:
                bench.wish(WishKind.ROLL_BACK)
            meter.told(loop.tick(bench.now), 0.004)
            bench.traffic()
        yield page.port


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, str]) -> Iterator[str]:
    """URL of one with the settings and rules that are shipped, at other addresses and a faster pace."""
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    settings["global"] = {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE}
    settings["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in settings["rule_files"]]
    for job in settings["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with running(command, folder, lambda: is_ready(f"http://{address}/-/ready")):
        yield f"http://{address}"


def matches(url: str, expr: str) -> int:
    """How many series; a query that is wrong is an HTTP error."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}", timeout=30) as answer:
        return len(json.load(answer)["data"]["result"])


def unmatched(url: str, asked: Mapping[str, str]) -> dict[str, str]:
    """Those that match nothing, however long one waits."""
    deadline, left = time.monotonic() + PATIENT_SECONDS, dict(asked)
    while left and time.monotonic() < deadline:
        left = {name: expr for name, expr in left.items() if not matches(url, expr)}
        time.sleep(0.2)
    return left


def test_every_query_matches_something(tmp_path: Path) -> None:
    with ExitStack() as stack:
        backend = stack.enter_context(emulated())
        gateway = stack.enter_context(configured(backend.address, tmp_path / "serve.toml", QUIET + TUNED))
        ledger = stack.enter_context(tempfile.TemporaryDirectory())
        port = stack.enter_context(tuner_page(Path(ledger)))
        targets = {"setpoint-gateway": gateway.removeprefix("http://"), "setpoint-tuner": f"127.0.0.1:{port}"}
        url = stack.enter_context(prometheus(tmp_path, targets))
        for number in range(2):
            ask(gateway, chat("asked twice"))
            ask(gateway, chat(f"asked once {number}"))
        assert unmatched(url, queries()) == {}
        assert matches(url, "setpoint_tuner_lease_held") == 1  # what the board's variable is made of
        assert matches(url, "setpoint_tuner_no_such_metric") == 0  # a query can fail
