"""`setpoint whatif` from trace to tables, JSON, picture and page."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from api.cli.whatif import whatif
from api.report.page import render
from api.report.whatif import whatif_page
from caches.errors import InputError
from tests.envs.worlds import random_trace
from traces.store import open_trace, save_trace
from tuner.config import load_tuner_config
from tuner.whatif import Ask, what_if
from tuner.whatif_current import parse_wish

APP = typer.Typer()
APP.command()(whatif)
SETTINGS = """
[trace]
path = "small.trace"
interval_seconds = 10
[knobs.ttl_seconds]
low = 1
high = 200
default = 20
[constraints]
p99_ttft_seconds = 30.0
stale_ratio = 0.5
[prices]
answer_lifetime_seconds = 200
[run]
workers = 1
"""
GRID = ("--sizes", "3", "--ttls", "3", "--resamples", "100")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted trace and its settings, in a working directory of their own."""
    save_trace(random_trace(0, 30), tmp_path / "small.trace")
    (tmp_path / "setpoint.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(APP, list(arguments), catch_exceptions=False)


def test_policies_are_asked_for_by_option_or_setting(folder: Path) -> None:
    shown = run(*GRID, "--eviction-policy", "lru,sieve", "--admission", "all,second-hit", "--current", "policy=sieve")
    assert shown.exit_code == 0
    for text in ("The best setting under each policy", "lru + second-hit", "sieve + second-hit", "No current size was"):
        assert text in shown.stdout, text
    page = (folder / "out/random/whatif.html").read_text(encoding="utf-8")
    assert "Which entry goes: policies side by side" in page
    with (folder / "setpoint.toml").open("a") as settings:
        settings.write('[cache]\neviction_policy = ["lfu", "gdsf"]\n')
    told = orjson.loads(run(*GRID, "--json").stdout)
    assert [one["policy"] for one in told["policies"]] == ["lfu", "gdsf"]
    assert told["current"]["policy"] == "lru"
    assert "No current eviction policy was given; lru is taken." in told["subject"]["remarks"]


def test_tables_sentences_picture_and_page(folder: Path) -> None:
    result = run(*GRID, "--current", "size=5%,ttl=2s")
    assert result.exit_code == 0
    for text in (
        "Hit ratio, by size and TTL",
        "USD per 1,000 requests, by size and TTL",
        "Nearest to: * the best setting, ° now.",
        "What runs now (",
        "The saving's 95 % interval over time",
        "Report to read: out/random/whatif.html",
        "Picture: out/random/whatif.png",
    ):
        assert text in result.stdout, text
    assert (folder / "out/random/whatif.png").stat().st_size > 20_000
    page = (folder / "out/random/whatif.html").read_text(encoding="utf-8")
    for heading in (
        "What you pay, and what you would pay",
        "How sure that is",
        "What changes, and when",
        "What it never does",
    ):
        assert f"<h2>{heading}</h2>" in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert sorted(path.name for path in (folder / "out/random").iterdir()) == ["whatif.html", "whatif.png"]


def test_json_has_the_same_numbers(folder: Path) -> None:
    content = orjson.loads(run(*GRID, "--json", "--current", "size=5%,ttl=2s,warmup=0.1").stdout)
    assert [axis["name"] for axis in content["axes"]] == ["cache_size", "ttl_seconds"]
    assert [len(row) for row in content["hit_ratio"]["values"]] == [3, 3, 3]
    assert content["hit_ratio"]["error"] is None
    assert content["bound"] is None  # with warm-ups there is none
    assert content["current"]["settings"]["ttl_seconds"] == 2.0
    assert content["current"]["settings"]["warmup_ratio"] == 0.1
    assert content["subject"]["current_given"]
    assert content["page"] == "out/random/whatif.html"
    assert content["sentences"]


def test_json_holds_the_bound_where_there_is_one(folder: Path) -> None:
    content = orjson.loads(run(*GRID, "--json", "--current", "size=5%,ttl=2s").stdout)
    bound, hits = content["bound"]["values"], content["hit_ratio"]["values"]
    assert [len(row) for row in bound] == [3, 3, 3]
    assert all(
        most >= ours for mosts, each in zip(bound, hits, strict=True) for most, ours in zip(mosts, each, strict=True)
    )


def test_without_a_current_setting_the_defaults_are_compared_and_it_says_so(folder: Path) -> None:
    result = run(*GRID)
    assert "No current setting was given; the configured default (" in result.stdout
    assert "TTL 20 s) costs" in result.stdout


def test_a_bad_setting_is_refused_before_a_trace_is_read(folder: Path) -> None:
    with pytest.raises(InputError, match="--current ttl: got 'soon'"):
        run("none.trace", "--current", "ttl=soon")


def test_a_trace_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="trace: got none, expected an argument"):
        run()
    assert list(tmp_path.iterdir()) == []


def test_an_interval_that_does_not_fit_names_one_that_does(folder: Path) -> None:
    with pytest.raises(InputError, match=r"--interval: got 900 s, expected at most half of the 305 s .* --interval 10"):
        run("--interval", "900")


def test_a_source_without_times_is_spaced_as_asked(folder: Path) -> None:
    (folder / "some.keys").write_text("\n".join(str(n % 7) for n in range(400)))
    result = run("some.keys", "--requests-per-second", "2", *GRID)
    assert result.exit_code == 0
    assert "400 requests, 19 intervals" in result.stdout
    assert "Assumption:" in result.stdout


def test_long_traces_are_sampled_and_say_so(folder: Path) -> None:
    result = run(*GRID, "--exact-up-to", "10")
    assert "The surface is estimated from 8 samples" in result.stdout


def test_a_page_for_every_end(folder: Path) -> None:
    """Kept as it is, better, and never safe: each with a title that says so."""
    trace = open_trace(folder / "small.trace")
    config = load_tuner_config(None, folder, {}, {})
    found = what_if(config, trace, Ask(parse_wish("size=5%,ttl=2"), 3, 3))
    best = found.best.settings
    same = parse_wish(f"size={best.cache_size:.0f},ttl={best.ttl_seconds!r}")
    ends = {
        "Other settings of the cache would save": found,
        "The cache is set well": what_if(config, trace, Ask(same, 3, 3)),
        "No cache setting keeps the constraints": what_if(
            load_tuner_config(None, folder, {}, {"constraints.p99_ttft_seconds": 1e-9}), trace, Ask(sizes=3, ttls=3)
        ),
    }
    for title, result in ends.items():
        assert title in render(whatif_page(result, "2026-01-01"))
