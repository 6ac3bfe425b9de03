from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from api.cli.calibrate import chosen_setup
from api.cli.main import app
from caches.errors import InputError
from envs.serving import load_profile
from traces.request_logs import MeasuredRun

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "traces" / "calibration"
BASES = ROOT / "benchmarks" / "bases"
needs_runs = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the measured runs in ../shared/traces/calibration")


def calibrate(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["calibrate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two runs of an idle engine: 50 ms, and 0.2 ms a prompt token, 10 ms an output token."""
    rng = np.random.default_rng(0)
    lines = ["ts,in,out,first,all,run"]
    for start, run in ((0, "a"), (1000, "b")):
        for i in range(30):
            prompt, output = rng.integers(10, 3000), rng.integers(1, 50)
            first = 0.05 + prompt * 2e-4
            lines.append(f"{start + 10 * i},{prompt},{output},{first:.6f},{first + output * 0.01:.6f},{run}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


COLUMNS = [
    part
    for pair in ("arrival=ts", "prompt=in", "output=out", "ttft=first", "latency=all", "run=run")
    for part in ("--column", pair)
]


def test_any_log_with_named_columns(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    text = calibrate(log, "--base", "qwen2.5-7b-a100", "--out", out, *COLUMNS, "--json")
    told = json.loads(text)
    assert told["median_error_held_back"] < 0.01
    assert [(run["run"], run["held"]) for run in told["runs"]] == [("a", False), ("b", True)]
    profile = load_profile(str(out))
    assert profile.name == "mine"
    assert profile.prefill_tokens_per_second == pytest.approx(5000, rel=0.02)
    assert profile.request_overhead_seconds == pytest.approx(0.05, rel=0.05)
    assert profile.seconds_per_output_token_alone == pytest.approx(0.01, rel=0.02)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "mine.png", "mine.toml"]


def test_the_table_says_what_was_held_back(log: Path, tmp_path: Path) -> None:
    text = calibrate(
        log, "--base", "qwen2.5-7b-a100", "--out", tmp_path / "p.toml", "--name", "named", *COLUMNS, "--hold-back", "a"
    )
    assert "Held back: a: median absolute error of P50 and P99 TTFT there" in text
    assert load_profile(str(tmp_path / "p.toml")).name == "named"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--routing", "magic"], "--routing: got 'magic', expected auto or one of queue"),
        (["--setup", "x"], "--setup: got 'x'"),
        (["--replicas", "0"], "replicas: got 0"),
        (["--out", "nowhere/p.toml"], "got no folder 'nowhere'"),
        (["--hold-back", "c"], "hold back: got the run 'c'"),
        (["--reuse", "gpu"], "reuse: got 'gpu' for runs without sessions"),
        (["--base", "none"], "serving profile: got 'none'"),
    ],
)
def test_silly_wishes_are_refused(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    everything = [log, "--base", "qwen2.5-7b-a100", *COLUMNS, *arguments]
    with pytest.raises(InputError) as raised:
        CliRunner().invoke(app, ["calibrate", *map(str, everything)], catch_exceptions=False)
    assert message in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_one_setup_of_several_has_to_be_named() -> None:
    none = np.zeros(0)
    runs = [MeasuredRun(Path("log"), "1", setup, none, none, none, none, none) for setup in ("a", "b")]
    with pytest.raises(InputError, match="--setup: got none for logs with several, expected one of a, b"):
        chosen_setup(runs, None)
    assert [run.setup for run in chosen_setup(runs, "b")] == ["b"]


@needs_runs
def test_a_vllm_log_with_its_description(tmp_path: Path) -> None:
    for name in ("requests.jsonl.gz", "meta.json.gz"):
        shutil.copy(SHARED / f"vllm_rtx4090_llama3.1-8b.{name}", tmp_path)
    told = json.loads(
        calibrate(
            tmp_path / "vllm_rtx4090_llama3.1-8b.requests.jsonl.gz",
            "--base",
            BASES / "llama-3.1-8b-rtx4090.toml",
            "--out",
            tmp_path / "p.toml",
            "--json",
        )
    )
    assert load_profile(str(tmp_path / "p.toml")).kv_tokens == 41_408
    assert told["median_error_held_back"] < 0.15


@pytest.mark.slow
@needs_runs
def test_aibrix_results(tmp_path: Path) -> None:
    told = json.loads(
        calibrate(
            SHARED / "aibrix_v0.3.0_runs.csv.gz",
            "--setup",
            "aibrix_naive",
            "--replicas",
            8,
            "--base",
            BASES / "llama-3.1-8b-h20.toml",
            "--out",
            tmp_path / "p.toml",
            "--json",
        )
    )
    assert (told["routing"], told["reuse"]) == ("least", "gpu")
    assert told["median_error_held_back"] < 0.15
