"""What a namespace may take for the same although it is written differently: each rule alone, by hand and at random."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.addresses import plain_address, without_parameters
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import meaning
from caches.keys.lines import GONE, Clock, coarse_clock, without_values
from caches.keys.rules import KeyRules
from caches.keys.structure import ALL, EXACT, TRACKING_FIELDS, TRACKING_LABELS, Structure
from tests.caches.test_keys import key, said
from tests.caches.test_keys_properties import bodies

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

MORE = "\u2028 \u00a0"  # ends of lines and spaces that hypothesis would hardly find

CLOCKS = [
    ("Current time: 2026-11-30T10:34:26Z", "Current time: 2026-11-30T10:00Z", "Current time: 2026-11-30"),
    ("Today is Monday, November 30, 2026.", None, "Today is Monday, November 30, 2026."),
    (
        "The current date and time is: Mon, 30 Nov 2026 10:34:26 GMT",
        "The current date and time is: Mon, 30 Nov 2026 10:00 GMT",
        "The current date and time is: Mon, 30 Nov 2026",
    ),
    ("- date: 2026/11/30 09:05 PM", "- date: 2026/11/30 09:00 PM", "- date: 2026/11/30"),
    ("now=1764498866", "now=1764496800", "now=1764460800"),  # 490,138 hours and 20,422 days of Unix time
    ("timestamp: 1764498866123", "timestamp: 1764496800000", "timestamp: 1764460800000"),
    ("Local time: 23:59", "Local time: 23:00", f"Local time: {GONE}"),
]


@pytest.mark.parametrize(("line", "by_hour", "by_day"), CLOCKS)
def test_a_line_with_the_time_is_cut_as_said(line: str, by_hour: str | None, by_day: str) -> None:
    around = f"Be brief.\n{line}\nDate of birth: 1990-01-02 is a date."
    assert coarse_clock(around, Clock.EXACT) == around
    assert coarse_clock(around, Clock.HOUR) == around.replace(line, by_hour or line)
    assert coarse_clock(around, Clock.DAY) == around.replace(line, by_day)
    gone = coarse_clock(around, Clock.GONE)
    assert gone.count(GONE) == 1
    assert gone.startswith("Be brief.\n")
    assert gone.endswith("\nDate of birth: 1990-01-02 is a date.")


@pytest.mark.parametrize(
    "line",
    ["Time: UTC", "The deadline is 2026-11-30", "Time is money", "Current time:", "Today is a good day", "date: soon"],
)
def test_a_line_that_states_no_time_stays(line: str) -> None:
    assert coarse_clock(line, Clock.GONE) == line


def test_a_time_never_reaches_into_the_next_line() -> None:
    assert coarse_clock("Current date:\n2026-11-30", Clock.GONE) == "Current date:\n2026-11-30"


def test_labels_are_compared_in_one_spelling_and_lines_stay() -> None:
    text = 'X-Request-ID: 4f\nrequest_id = "7"\n- **Trace id**: 9\nrequest: 5\nthe request id: 6'
    assert without_values(text, frozenset({"x request id", "request id", "trace id"})) == (
        f"X-Request-ID: {GONE}\nrequest_id = {GONE}\n- **Trace id**: {GONE}\nrequest: 5\nthe request id: 6"
    )


# RFC 3986: 6.2.2.1 to 6.2.2.3 and 6.2.3
ADDRESSES = [
    ("HTTP://Example.COM:80/a%7eb/%c3%a9?x=%2f#part", "http://example.com/a~b/%C3%A9?x=%2F"),
    ("https://example.com", "https://example.com/"),
    ("https://u:P@HOST:443/A", "https://u:P@host/A"),
    ("https://host:8443/", "https://host:8443/"),
    ("data:image/png;base64,AAAA", "data:image/png;base64,AAAA"),
    ("https://[::1/", "https://[::1/"),
    ("https://exämple.com/%7e", "https://exämple.com/%7e"),
]


@pytest.mark.parametrize(("address", "plain"), ADDRESSES)
def test_addresses_by_the_standard(address: str, plain: str) -> None:
    assert plain_address(address) == plain
    assert plain_address(plain) == plain


def test_parameters_go_by_name_and_the_order_of_the_others_stays() -> None:
    address = "https://a/b?utm_source=x&q=1&gclid=2&utm=3&p="
    assert without_parameters(address, ("utm_*", "gclid")) == "https://a/b?q=1&utm=3&p="
    assert without_parameters("https://a/b?utm_id=1", ("utm_*",)) == "https://a/b"
    assert without_parameters(address, ("none",)) == address


def image(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return said(("user", [part, {"type": "text", "text": "What is it?"}]))


# One rule, and pairs that only it takes for the same.
RULES: list[tuple[Structure, dict[str, Any], dict[str, Any]]] = [
    (Structure(line_ends=True), said(("user", "a\r\nb\rc")), said(("user", "a\nb\nc"))),
    (Structure(spaces=True), said(("user", "a  b \n\n\nc\u00a0d")), said(("user", "a b\n\nc d"))),
    (
        Structure(clock=Clock.DAY),
        said(("system", "Time: 2026-11-30 10:00")),
        said(("system", "Time: 2026-11-30 11:30")),
    ),
    (Structure(clock=Clock.GONE), said(("developer", "Time: 2026-11-30")), said(("developer", "Time: 2026-12-01"))),
    (
        Structure(ignored_lines=frozenset({"Request-ID"})),
        said(("system", "request id: 1\nBe brief.")),
        said(("system", "request id: 2\nBe brief.")),
    ),
    (Structure(addresses=True), image("https://A.example/%7ex"), image("https://a.example/~x#y")),
    (Structure(ignored_parameters=("utm_*",)), image("https://a/x?utm_id=1"), image("https://a/x")),
    (Structure(tracking_fields=True), said(("user", "a"), request_id="1"), said(("user", "a"), trace_id="2")),
    (Structure(folded_fields=frozenset({"model"})), said(("user", "a"), model="GPT"), said(("user", "a"), model="gpt")),
]


@pytest.mark.parametrize(("rule", "one", "other"), RULES)
def test_each_rule_merges_what_it_says_and_no_other_rule_does(
    rule: Structure, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (
        key(one, rules=KeyRules(structure=rule)).fingerprint == key(other, rules=KeyRules(structure=rule)).fingerprint
    )
    assert key(one).fingerprint != key(other).fingerprint
    name = next(iter(rule.stated))
    without = KeyRules(structure=replace(ALL, **{"folded_fields": frozenset({"x-tone"}), name: getattr(EXACT, name)}))
    assert key(one, rules=without).fingerprint != key(other, rules=without).fingerprint


# Pairs that no rule may merge: another word, another time where it is not a line of its own, code, an assistant's text.
DIFFERENT = [
    (said(("user", "a b")), said(("user", "ab"))),
    (said(("user", "if x:\n    y")), said(("user", "if x:\n  y"))),
    (said(("user", "```\na  b\n```")), said(("user", "```\na b\n```"))),
    (said(("user", "Time: 2026-11-30")), said(("user", "Time: 2026-12-01"))),
    (said(("user", "request id: 1")), said(("user", "request id: 2"))),
    (said(("system", "Time: 2026-11-30 is a date")), said(("system", "Time: 2026-12-01 is a date"))),
    (said(("system", "Time: 2026-11-30")), said(("system", ""))),
    (said(("assistant", "a  b"), ("user", "c")), said(("assistant", "a b"), ("user", "c"))),
    (image("https://a/x?b=1&c=2"), image("https://a/x?c=2&b=1")),
    (image("https://a/X"), image("https://a/x")),
    (said(("user", "A")), said(("user", "a"))),
    (said(("user", "a"), seed=1), said(("user", "a"), seed=2)),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_all_rules_together_keep_apart_what_differs(one: dict[str, Any], other: dict[str, Any]) -> None:
    rules = KeyRules(structure=replace(ALL, folded_fields=frozenset({"x-tone"})))
    assert key(one, rules=rules).fingerprint != key(other, rules=rules).fingerprint


def test_a_prompt_is_to_be_continued_to_the_letter() -> None:
    assert ALL.apply("prompt", "a  b\r\n") == "a  b\r\n"
    assert ALL.apply("input", ["a  b"]) == ["a  b"]


@UNHURRIED
@given(bodies, st.text("ab \t\r\n\u2028\u00a0:0123456789-TZ", max_size=30))
def test_rules_are_idempotent(body: dict[str, Any], text: str) -> None:
    messages = [*body["messages"], *({"role": role, "content": f"{text}{MORE}"} for role in ("system", "user"))]
    rules = KeyRules(structure=ALL, trim_text=True)
    once = meaning(Endpoint.CHAT, body | {"messages": messages}, rules)
    assert meaning(Endpoint.CHAT, copy.deepcopy(once), rules) == once


@UNHURRIED
@given(bodies)
def test_rules_that_are_off_change_no_key(body: dict[str, Any]) -> None:
    assert KeyRules(structure=Structure()).form == KeyRules().form
    folded = KeyRules(structure=Structure(folded_fields=frozenset({"x-tone"})))
    assert key(body, rules=KeyRules(structure=Structure())) == key(body)
    assert key(body, rules=folded).fingerprint != key(body).fingerprint  # under other rules nothing old is served


@UNHURRIED
@given(st.sampled_from(sorted(TRACKING_FIELDS)), st.none() | st.integers() | st.text(max_size=5))
def test_tracking_fields_count_unless_they_are_ruled_out(name: str, value: object) -> None:
    body = said(("user", "a"))
    assert key(body | {name: value}).fingerprint != key(body).fingerprint
    rules = KeyRules(structure=Structure(tracking_fields=True))
    assert key(body | {name: value}, rules=rules) == key(body, rules=rules)


def test_the_labels_that_are_known_are_in_one_spelling() -> None:
    assert Structure(ignored_lines=frozenset(TRACKING_LABELS)).ignored_lines == frozenset(TRACKING_LABELS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Structure(folded_fields=frozenset({"messages"})), "folded_fields: got 'messages'"),
        (lambda: Structure(ignored_lines=frozenset({" - "})), "got an empty name"),
        (lambda: Structure(ignored_parameters=("",)), "got an empty name"),
    ],
)
def test_rules_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
