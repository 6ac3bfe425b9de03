from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from caches.errors import InputError, SetpointError
from envs.calibration import Calibration, calibrate
from envs.calibration_report import error_rows, save_profile, save_qq, summary
from envs.deployment import Deployment, Sent, simulate
from envs.measurement import measurement_of
from envs.serving import ServingProfile, load_profile
from tests.envs.worlds import PROFILE
from traces.request_logs import EngineLimits, MeasuredRun

TRUTH = PROFILE.model_copy(
    update={
        "name": "truth",
        "kv_bytes_per_token": 100_000,
        "prefill_tokens_per_second": 5_000.0,
        "request_overhead_seconds": 0.03,
        "seconds_per_output_token_alone": 0.01,
        "seconds_per_output_token": 0.04,
        "max_sequences": 32,
        "prefill_chunk_tokens": 2_048,
        "kv_tokens": 60_000,
    }
)
GUESS = TRUTH.model_copy(
    update={
        "prefill_tokens_per_second": 9_000.0,
        "request_overhead_seconds": 0.0,
        "seconds_per_output_token_alone": None,
        "seconds_per_output_token": 0.03,
        "prefill_chunk_tokens": 0,
    }
)
LIMITS = EngineLimits(32, 60_000, 2_048, "an engine of the tests")
RATES = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)


def run_at(rate: float, start: float, *, sessions: bool = False, count: int = 250) -> MeasuredRun:
    """A run that the model itself made."""
    rng = np.random.default_rng(int(10 * rate))
    arrival = np.cumsum(rng.exponential(1 / rate, count))
    prompt = np.round(rng.lognormal(6.5, 0.7, count)) + 1
    output = np.round(rng.lognormal(4.0, 0.6, count)) + 1
    session = rng.integers(0, 12, count) if sessions else np.full(count, -1)
    sent = Sent(arrival, prompt, output, session)
    made = simulate(TRUTH, Deployment(reuse="gpu" if sessions else "none"), sent, 0)
    names = session.astype(str) if sessions else None
    return MeasuredRun(
        Path("log.csv"), str(rate), "", start + arrival, prompt, output, made.ttft, made.latency, names, LIMITS
    )


@pytest.fixture(scope="module")
def done() -> Calibration:
    runs = [run_at(rate, 10_000.0 * i) for i, rate in enumerate(RATES)]
    return calibrate(measurement_of(runs), GUESS, Deployment())


def test_the_fit_finds_what_the_runs_were_made_with(done: Calibration) -> None:
    assert done.profile.prefill_tokens_per_second == pytest.approx(5_000, rel=0.05)
    assert done.profile.request_overhead_seconds == pytest.approx(0.03, rel=0.15)
    assert done.profile.seconds_per_output_token_alone == pytest.approx(0.01, rel=0.1)
    assert done.profile.seconds_per_output_token == pytest.approx(0.04, rel=0.25)
    error = done.median_error(held=True)
    assert error is not None
    assert error < 0.02


def test_limits_of_the_engine_are_not_fitted(done: Calibration) -> None:
    assert (done.profile.max_sequences, done.profile.kv_tokens, done.profile.prefill_chunk_tokens) == (
        32,
        60_000,
        2_048,
    )
    assert {"kv_tokens", "prefill_chunk_tokens"}.isdisjoint(fit.name for fit in done.fitted)


def test_every_second_run_is_held_back_and_counts_in_nothing_but_the_errors(done: Calibration) -> None:
    assert [row.run for row in error_rows(done) if row.held] == ["1.0", "3.0", "5.0"]
    # nonsense measured on a run that is held back moves no parameter
    runs = [run_at(rate, 10_000.0 * i) for i, rate in enumerate(RATES)]
    odd = runs[3]
    runs[3] = MeasuredRun(
        odd.source, odd.name, "", odd.arrival, odd.prompt, odd.output, 9 * odd.ttft, 9 * odd.latency, None, LIMITS
    )
    again = calibrate(measurement_of(runs), GUESS, Deployment())
    assert again.profile == done.profile
    assert error_rows(again)[3].ttft_errors[0] == pytest.approx((1 + error_rows(done)[3].ttft_errors[0]) / 9 - 1)


def test_what_the_runs_determine_is_told(done: Calibration) -> None:
    told = {fit.name: fit.determined for fit in done.fitted}
    assert told["prefill_tokens_per_second"]
    assert told["seconds_per_output_token_alone"]


def test_one_run_is_judged_on_its_second_half() -> None:
    measurement = measurement_of([run_at(3.0, 0.0, count=251)])
    assert [(part.name, len(part.rows), part.held) for part in measurement.parts] == [
        ("3.0, first half", 125, False),
        ("3.0, second half", 126, True),
    ]
    assert "second half" in measurement.split


def test_runs_that_follow_each_other_keep_their_caches_warm() -> None:
    runs = [run_at(1.0, 0.0, sessions=True), run_at(2.0, 10_000.0, sessions=True)]
    assert [sent.arrival.size for sent in measurement_of(runs).streams] == [500]
    apart = [run_at(1.0, 0.0, sessions=True), run_at(2.0, 0.0, sessions=True)]
    streams = measurement_of(apart).streams
    assert [sent.arrival.size for sent in streams] == [250, 250]
    # sessions are those of the whole deployment, numbered from 0
    assert sorted(set(streams[0].session.tolist())) == list(range(12))


def test_the_kv_memory_of_a_prefix_cache_shows_in_the_hits() -> None:
    runs = [run_at(rate, 0.0, sessions=True) for rate in RATES]  # at the same time, so each starts cold, as it was made
    unknown = EngineLimits(32, None, 2_048, "")
    runs = [
        MeasuredRun(
            run.source, run.name, "", run.arrival, run.prompt, run.output, run.ttft, run.latency, run.session, unknown
        )
        for run in runs
    ]
    base = GUESS.model_copy(update={"kv_tokens": 45_000})
    found = calibrate(measurement_of(runs), base, Deployment(reuse="gpu"))
    error = found.median_error(held=True)
    assert error is not None
    assert error < 0.01
    assert found.profile.prefill_tokens_per_second == pytest.approx(5_000, rel=0.02)


@pytest.mark.parametrize(
    ("hold_back", "message"),
    [("9.9", r"got the run '9.9', expected every-second, none or some of 0.5"), ("0.5,1.0", "at least one run to fit")],
)
def test_runs_to_hold_back_have_to_exist_and_leave_some(hold_back: str, message: str) -> None:
    runs = [run_at(rate, 10_000.0 * i, count=20) for i, rate in enumerate(RATES[:2])]
    with pytest.raises(InputError, match=message):
        measurement_of(runs, hold_back)


def test_runs_that_cannot_be_calibrated_are_refused() -> None:
    with pytest.raises(InputError, match="got none"):
        measurement_of([])
    with pytest.raises(InputError, match="got 9 requests, expected at least 10"):
        measurement_of([run_at(1.0, 0.0, count=9)])
    plain = measurement_of([run_at(1.0, 0.0, count=20)])
    with pytest.raises(InputError, match="reuse: got 'gpu' for runs without sessions"):
        calibrate(plain, GUESS, Deployment(reuse="gpu"))
    with pytest.raises(InputError, match="routing: got session for runs without sessions"):
        calibrate(plain, GUESS, Deployment(2, "session"))


def test_the_profile_file_says_where_its_numbers_come_from(done: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "fitted.toml"
    saved = save_profile(done, "fitted", 'log.csv, setup "a"', path, date(2026, 11, 29))
    assert load_profile(str(path)) == saved
    assert list(tmp_path.iterdir()) == [path]
    written = tomllib.loads(path.read_text())
    assert written["sources"]["prefill_tokens_per_second"] == 'fitted to log.csv, setup "a", 2026-11-29'
    assert written["sources"]["kv_tokens"] == "set on the measured engine (an engine of the tests)"
    assert "# Every second run was held back" in path.read_text()
    for name, value in done.profile.model_dump(exclude={"sources", "name"}).items():
        if name in written:
            assert written[name] == pytest.approx(value, rel=1e-5)
        else:
            assert value == ServingProfile.model_fields[name].default


def test_a_profile_that_cannot_be_written_leaves_nothing_behind(done: Calibration, tmp_path: Path) -> None:
    target = tmp_path / "fitted.toml"
    target.mkdir()
    with pytest.raises(SetpointError, match="cannot be written"):
        save_profile(done, "fitted", "log.csv", target, date(2026, 11, 29))
    assert list(tmp_path.iterdir()) == [target]


def test_a_profile_reads_back_whatever_its_sources_say(done: Calibration, tmp_path: Path) -> None:
    odd = 'a "quoted" \\ name\twith\ncontrol \x7f signs — ✓'
    saved = save_profile(done, odd, odd, tmp_path / "odd.toml", date(2026, 11, 29))
    assert saved.name == odd
    assert isinstance(saved, ServingProfile)


def test_the_picture_is_drawn(done: Calibration, tmp_path: Path) -> None:
    save_qq(done, "synthetic runs", tmp_path / "qq.png")
    assert (tmp_path / "qq.png").read_bytes().startswith(b"\x89PNG")
    assert summary(done).startswith("every second run was held back: median absolute error of P50 and P99 TTFT there")
