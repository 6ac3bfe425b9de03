"""`setpoint ledger prune` as a person meets it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.cli.main import main
from tests.contracts.ledger_records import CACHE, decision, interval, taken, tick, wish
from tuner.ledgers.sql import open_ledger

DAY = 86_400.0
URL = "sqlite:///setpoint.db"
Prune = Callable[..., str]


@pytest.fixture
def prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Prune:
    """Runs the command beside a ledger with three intervals, of 100, 50 and 10 days ago, and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["setpoint", "ledger", "prune", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def fill(folder: Path) -> None:
    """One arm. The wish is as old as the oldest interval, and is answered."""
    ledger, now = open_ledger(URL, folder), time.time()
    lease = taken(ledger, now)
    asked = ledger.wish(replace(wish(), at_seconds=now - 100 * DAY))
    for index, days in enumerate((100, 50, 10), start=1):
        at_seconds = now - days * DAY
        over = (replace(interval(index - 1), ended_seconds=at_seconds),)
        done = (replace(asked, done_index=1, answer="paused"),) if index == 1 else ()
        decided = (replace(decision(index), at_seconds=at_seconds),)
        ledger.commit(lease, replace(tick(index), intervals=over, decisions=decided, wishes=done), now)
    ledger.close()


def kept(folder: Path) -> tuple[list[int], set[int], int]:
    """Intervals and decisions, by index, and the number of wishes."""
    ledger = open_ledger(URL, folder)
    found = (
        [one.index for one in ledger.intervals(CACHE, 0, 9)],
        {one.index for one in ledger.decisions(CACHE)},
        len(ledger.wishes(CACHE)),
    )
    ledger.close()
    return found


def test_a_dry_run_says_how_much_it_would_be_and_removes_nothing(prune: Prune, tmp_path: Path) -> None:
    told = json.loads(prune("--days", "30", "--dry-run", "--json"))
    assert told.pop("before_seconds") == pytest.approx(time.time() - 30 * DAY, abs=600)
    assert told == {"dry_run": True, "intervals": 2, "decisions": 2, "judgements": 0, "wishes": 1}
    assert kept(tmp_path) == ([0, 1, 2], {1, 2, 3}, 1)


def test_what_is_older_is_removed_and_counted(prune: Prune, tmp_path: Path) -> None:
    told = json.loads(prune("--days", "70", "--json"))
    assert [told[name] for name in ("dry_run", "intervals", "decisions", "wishes")] == [False, 1, 1, 1]
    assert kept(tmp_path) == ([1, 2], {2, 3}, 0)
    assert json.loads(prune("--days", "0", "--json"))["intervals"] == 2
    assert kept(tmp_path) == ([], {3}, 0)  # the decision of the interval that is open


def test_without_an_age_it_is_the_one_that_the_daemon_keeps_to(prune: Prune, tmp_path: Path) -> None:
    assert json.loads(prune("--json"))["intervals"] == 0  # 400 days
    (tmp_path / "setpoint.toml").write_text("[control]\nkeep_days = 70\n")
    assert json.loads(prune("--json"))["intervals"] == 1


def test_it_is_told_as_a_table(prune: Prune) -> None:
    would, did = prune("--days", "70", "--dry-run"), prune("--days", "70")
    assert would.startswith("Would be removed, of what is from before 2")
    assert did.startswith("Removed, of what is from before 2")
    for shown in (would, did):
        rows = [line.split() for line in shown.splitlines()]
        assert ["intervals", "1"] in rows
        assert ["judgements", "0"] in rows


@pytest.mark.parametrize("days", ["-1", "nan"])
def test_an_age_that_is_none_is_refused(prune: Prune, tmp_path: Path, days: str) -> None:
    prune("--days", days, code=2)
    assert kept(tmp_path) == ([0, 1, 2], {1, 2, 3}, 1)
