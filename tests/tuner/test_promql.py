from __future__ import annotations

from collections.abc import Mapping

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from tuner.prometheus.promql import age_query, check_matchers, duration, filled, placeholders, series_read, union


@pytest.mark.parametrize(
    ("query", "selectors"),
    [
        ("up", ["up{}"]),
        ('vllm:x{a="1",b!="2",c=~"3|4",d!~"5",}', ['vllm:x{a="1",b!="2",c=~"3|4",d!~"5"}']),
        ('{__name__="up"}', ['{__name__="up"}']),
        ("sum by (le) (rate(x_bucket[5m]))", ["x_bucket{}"]),
        ("a / on (job) group_left (b) c unless d", ["a{}", "c{}", "d{}"]),
        ("-a + 2 * max_over_time(rate(b[1m])[5m:10s])", ["a{}", "b{}"]),
        ("topk(1, a offset 5m) - quantile(0.5, b @ end())", ["a{}", "b{}"]),  # of now, whatever the query goes back to
        ("histogram_quantile(scalar(q), a)", ["q{}", "a{}"]),
        ("(a or b) / c", ["a{}", "b{}", "c{}"]),
        ("time() - a", ["a{}"]),
    ],
)
def test_series_that_a_query_reads(query: str, selectors: list[str]) -> None:
    assert list(series_read("here", query).selectors()) == selectors


@pytest.mark.parametrize(
    ("query", "sampled", "oldest"),
    [
        ("a", {"a": 5.0}, 5.0),
        ("a", {"a": None}, None),
        ("a / b", {"a": 5.0, "b": 3.0}, 3.0),
        ("a / b", {"a": 5.0, "b": None}, None),
        ("a or b", {"a": 5.0, "b": None}, 5.0),
        ("a or b", {"a": None, "b": 3.0}, 3.0),
        ("a or b", {"a": 5.0, "b": 3.0}, 3.0),  # both may have a part in it, by their labels
        ("a or b", {"a": None, "b": None}, None),
        ("(a or 0 * b) / b", {"a": None, "b": 3.0}, 3.0),
        ("(a or 0 * c) / b", {"a": 1.0, "b": None, "c": 2.0}, None),
        ("a / b or c / d", {"a": 1.0, "b": None, "c": 4.0, "d": 5.0}, 4.0),
    ],
)
def test_a_value_is_as_old_as_the_oldest_sample_that_it_needs(
    query: str, sampled: Mapping[str, float | None], oldest: float | None
) -> None:
    assert series_read("here", query).oldest({f"{name}{{}}": time for name, time in sampled.items()}) == oldest


LABELS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=10), max_size=3)


@given(LABELS)
def test_a_selector_says_again_what_the_query_said(labels: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    query = "x{" + ",".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}"
    (selector,) = series_read("here", query).selectors()
    read = promql_parser.parse(selector)
    assert isinstance(read, promql_parser.VectorSelector)
    assert {one.name: one.value for one in read.matchers.matchers} == labels


@pytest.mark.parametrize("query", ["", "sum(", "rate(up)", "1 + 2", "time()", "vector(0)", "up{a=1}"])
def test_what_is_no_query_of_a_series(query: str) -> None:
    with pytest.raises(InputError, match=r"^signals\.queries\.entries: got .*, expected "):
        series_read("signals.queries.entries", query)


def test_matchers() -> None:
    for good in ("", 'job="a"', 'job="a",', 'job=~"a|b",instance!=""'):
        check_matchers("signals.labels", good)
    for bad in ("job", "job=a", 'job="a"}', '{job="a"}'):
        with pytest.raises(InputError, match=r"^signals\.labels: got .* expected matchers such as"):
            check_matchers("signals.labels", bad)


def test_several_as_one() -> None:
    assert union([age_query("a{}"), age_query("b{}")]) == (
        'label_replace(min(timestamp(a{})), "setpoint_place", "0", "", "")'
        ' or label_replace(min(timestamp(b{})), "setpoint_place", "1", "", "")'
    )


def test_placeholders() -> None:
    query = 'rate(x{a="b",$labels}[$window]) / $slots'
    assert placeholders(query) == {"labels", "window", "slots"}
    assert filled(query, {"labels": "", "window": "5m", "slots": "4"}) == 'rate(x{a="b",}[5m]) / 4'


@pytest.mark.parametrize(("seconds", "text"), [(300.0, "300s"), (1.5, "1500ms"), (1.0, "1s"), (86_400.0, "86400s")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert promql_parser.parse_duration(text).total_seconds() == seconds
