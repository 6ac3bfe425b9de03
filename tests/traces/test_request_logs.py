from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from caches.errors import BadRecord, InputError
from traces.request_logs import EngineLimits, natural, read_runs

SAMPLES = Path(__file__).parent / "samples"
SHARED = Path(__file__).parents[3] / "shared" / "traces" / "calibration"
HEAD = "arrival,prompt,output,ttft,latency\n"


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_aibrix_results_are_runs_by_setup_and_rate() -> None:
    runs = read_runs(SAMPLES / "aibrix_runs.csv", {})
    assert [(run.setup, run.name, len(run)) for run in runs] == [
        ("naive", "0.1", 4),
        ("naive", "2.1", 3),
        ("ps_stack", "0.1", 2),
    ]
    first = runs[0]
    # users 108, 37, 73 and 2 in order of arrival; generation_time runs from the first token
    assert first.session is not None
    assert first.session.tolist() == ["108", "37", "73", "2"]
    assert first.ttft.tolist() == [2.980658531188965, 2.9711074829101562, 2.9854042530059814, 2.956615447998047]
    assert first.latency[0] == pytest.approx(2.980658531188965 + 1.2517638206481934)
    assert first.arrival[0] == 1747433966.45407
    assert (first.prompt[0], first.output[0]) == (21073.0, 100.0)


def test_vllm_log_has_two_clocks() -> None:
    (run,) = read_runs(SAMPLES / "vllm.requests.jsonl", {})
    assert (run.name, run.setup, run.session) == ("vllm", "", None)
    # request 0 was queued soonest after its arrival; the others are timed by that offset
    assert run.ttft[0] == pytest.approx(27537.350135653 - 27536.660701067, abs=1e-6)
    since = 1787267980.5876398 - 1787267980.0827403
    assert run.ttft[4] == pytest.approx(27537.722408033 - 27536.660701067 - since, abs=1e-6)
    assert run.latency[4] == pytest.approx(27554.098571964 - 27536.660701067 - since, abs=1e-6)
    assert run.limits == EngineLimits(256, 41408, 2048, "meta-llama/Llama-3.1-8B, vLLM 0.19.0, NVIDIA GeForce RTX 4090")


def test_columns_by_their_roles(tmp_path: Path) -> None:
    text = "when,in,out,first,end,who\n5000,10,2,5500,7000,a\n4000,20,1,4200,4200,b\n"
    columns = {
        "arrival": "when",
        "prompt": "in",
        "output": "out",
        "first_token": "first",
        "last_token": "end",
        "session": "who",
    }
    (run,) = read_runs(written(tmp_path, text), columns, "ms")
    assert run.name == "log"
    assert run.arrival.tolist() == [4.0, 5.0]
    assert run.ttft.tolist() == pytest.approx([0.2, 0.5])
    assert run.latency.tolist() == pytest.approx([0.2, 2.0])
    assert run.session is not None
    assert run.session.tolist() == ["b", "a"]


def test_a_mapping_goes_over_that_of_a_known_layout() -> None:
    runs = read_runs(SAMPLES / "aibrix_runs.csv", {"last_token": "finish_time"})
    assert runs[0].latency[0] == pytest.approx(1747433970.6864927 - 1747433966.45407, abs=1e-5)


def test_compressed_and_plain_logs_are_equal(tmp_path: Path) -> None:
    packed = tmp_path / "vllm.requests.jsonl.gz"
    packed.write_bytes(gzip.compress((SAMPLES / "vllm.requests.jsonl").read_bytes()))
    (tmp_path / "vllm.meta.json.gz").write_bytes(gzip.compress((SAMPLES / "vllm.meta.json").read_bytes()))
    (ours,), (plain,) = read_runs(packed, {}), read_runs(SAMPLES / "vllm.requests.jsonl", {})
    assert ours.ttft.tolist() == plain.ttft.tolist()
    assert (ours.name, ours.limits) == (plain.name, plain.limits)


@pytest.mark.parametrize(
    ("row", "line", "field"),
    [
        ("1,10,5,0.1,abc", 2, "latency"),
        ("1,0,5,0.1,0.2", 2, "prompt"),
        ("1,10,0,0.1,0.2", 2, "output"),
        ("1,10,5,0,0.2", 2, "ttft"),
        ("1,10,5,0.1,0.2\n2,10,5,0.3,0.2", 3, "latency"),
        ("1,10,5,0.1,0.2\n\nnan,10,5,0.1,0.2", 4, "arrival"),
        ("1,nan,5,0.1,0.2", 2, "prompt"),
    ],
)
def test_a_bad_value_is_named_with_its_line_and_field(tmp_path: Path, row: str, line: int, field: str) -> None:
    path = written(tmp_path, HEAD + row + "\n")
    with pytest.raises(BadRecord) as raised:
        read_runs(path, {})
    assert (raised.value.path, raised.value.line, raised.value.field) == (path, line, field)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", {}, "got an empty file"),
        (HEAD, {}, "got a header without requests"),
        ("time,prompt,output,ttft,latency\n1,1,1,1,1\n", {}, "got no column for arrival"),
        ("arrival,prompt,output,latency\n1,1,1,1\n", {}, "got no column for ttft or first_token"),
        (HEAD + "1,1,1,1,1\n", {"arival": "arrival"}, "did you mean arrival|did you mean 'arrival'"),
        (HEAD + "1,1,1,1,1\n", {"session": "promt"}, "did you mean 'prompt'"),
        ("{not json\n", {}, "expected JSON"),
    ],
)
def test_a_file_that_does_not_fit_says_what_is_missing(
    tmp_path: Path, text: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_runs(written(tmp_path, text), columns)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_runs(tmp_path / "none.csv", {})


def test_limits_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vllm.requests.jsonl").write_bytes((SAMPLES / "vllm.requests.jsonl").read_bytes())
    meta = written(tmp_path, '{"engine_kwargs": {"max_num_seqs": "many"}}', "vllm.meta.json")
    with pytest.raises(InputError, match=r"max_sequences: got 'many'"):
        read_runs(tmp_path / "vllm.requests.jsonl", {})
    meta.write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        read_runs(tmp_path / "vllm.requests.jsonl", {})


def test_durations_have_no_calendar() -> None:
    with pytest.raises(InputError, match="got iso"):
        read_runs(SAMPLES / "aibrix_runs.csv", {}, "iso")


def test_names_sort_by_their_numbers() -> None:
    assert sorted(["10", "0.9", "2", "run b", "run a"], key=natural) == ["0.9", "2", "10", "run a", "run b"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the measured runs in ../shared/traces/calibration")
def test_measured_runs() -> None:
    runs = read_runs(SHARED / "aibrix_v0.3.0_runs.csv.gz", {})
    assert len(runs) == 66
    assert sum(map(len, runs)) == 15_120
    (overload,) = read_runs(SHARED / "vllm_rtx4090_llama3.1-8b.requests.jsonl.gz", {})
    assert len(overload) == 300
    assert overload.limits.kv_tokens == 41_408
