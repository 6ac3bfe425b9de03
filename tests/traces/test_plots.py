"""The picture of a workload: what is on it, and that it appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from caches.errors import SetpointError
from tests.traces.tiny import tiny_trace
from traces.plots import draw_workload, save_workload
from traces.trace import Trace, TraceInfo
from traces.workload import analyse


def busy_trace(**columns: object) -> Trace:
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.random(5_000)) * 86_400 * 4
    keys = rng.integers(50, size=5_000)
    return tiny_trace(keys.tolist(), seconds.tolist(), rng.integers(1, 9_999, 5_000).tolist(), **columns)


def titles(trace: Trace) -> list[str]:
    return [axes.get_title(loc="left") for axes in draw_workload(analyse(trace)).axes]


def test_every_panel_is_there() -> None:
    tokens = np.arange(5_000, dtype=np.int32)
    assert titles(busy_trace(prompt_tokens=tokens, output_tokens=tokens)) == [
        "Arrival rate, bins of 30 min",
        "Popularity",
        "Time to the next request of the same key",
        "Response size",
        "Entropy of keys, windows of 3 h",
        "Drift against the window before",
        "Tokens",
    ]


def test_no_panel_for_tokens_that_were_not_recorded() -> None:
    assert "Tokens" not in titles(busy_trace())


def test_composed_traffic_is_marked() -> None:
    figure = draw_workload(analyse(busy_trace(info=TraceInfo("mix", "two sources", composed=True))))
    assert figure.get_suptitle().startswith("mix (composed of several sources)\n5,000 requests")


def test_picture_is_a_png_of_one_size(tmp_path: Path) -> None:
    path = tmp_path / "busy.png"
    path.write_bytes(b"old")
    save_workload(analyse(busy_trace()), path)
    assert imread(path).shape == (1045, 1430, 4)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "trace",
    [
        tiny_trace([0], [0]),
        tiny_trace([0, 0], [4, 4], sizes=[0, 0]),
        tiny_trace([0, 1, 2], [0, 1, 2]),
        tiny_trace([0, 0, 0, 0], [0, 0, 0, 50]),
        tiny_trace([0, 0], [0, 1], output_tokens=np.zeros(2, dtype=np.int32)),
    ],
    ids=["one request", "one time, no sizes", "no repeats", "repeats at once", "tokens all zero"],
)
def test_odd_traces_can_be_drawn(trace: Trace, tmp_path: Path) -> None:
    save_workload(analyse(trace), tmp_path / "odd.png")
    assert (tmp_path / "odd.png").stat().st_size > 10_000


def test_nothing_is_left_where_the_picture_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(SetpointError, match=r"taken\.png: cannot be written"):
        save_workload(analyse(tiny_trace([0, 0], [0, 1])), tmp_path / "taken.png")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.png"]
