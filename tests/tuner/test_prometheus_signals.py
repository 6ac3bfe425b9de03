"""Signals from a real Prometheus, over samples that are written by hand: every value can be worked out."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import pytest

from caches.histograms import quantile
from caches.target import Histogram
from tests.contracts.signal_contract import SignalContract, Subject
from tests.servers import free_port
from tests.tuner.prometheus_parts import PATIENT_SECONDS, START_SECONDS, STEP_SECONDS, backfilled, signals_of
from tuner.prometheus.client import PrometheusServer
from tuner.prometheus.preset_queries import presets
from tuner.prometheus.promql import age_query
from tuner.prometheus.source import PrometheusSignals
from tuner.signals import SIGNALS, Signal

STEPS = 60
NOW = float(START_SECONDS + STEPS * STEP_SECONDS)
GATEWAY = 'endpoint="chat",outcome='


def grown(per_second: float, begin: float = 0.0) -> list[float]:
    """A counter up to NOW."""
    return [begin + per_second * STEP_SECONDS * i for i in range(STEPS + 1)]


def level(value: float) -> list[float]:
    return [value] * (STEPS + 1)


def buckets(name: str, labels: str, per_second: Mapping[str, float]) -> dict[str, list[float]]:
    """per_second: by upper end, cumulative."""
    return {f'{name}{{{labels},le="{end}"}}': grown(rate) for end, rate in per_second.items()}


SECONDS = "setpoint_gateway_response_seconds_bucket"
CONTRACT_TRAFFIC = {
    f'setpoint_gateway_requests_total{{{GATEWAY}"hit-l1"}}': grown(6.0),
    f'setpoint_gateway_requests_total{{{GATEWAY}"hit-l2"}}': grown(1.0, begin=777.0),
    f'setpoint_gateway_requests_total{{{GATEWAY}"miss"}}': grown(3.0),
    f'setpoint_gateway_requests_total{{{GATEWAY}"bypass"}}': grown(50.0),
    **buckets(SECONDS, f'{GATEWAY}"hit-l1"', {"0.0005": 0, "0.001": 7, "0.2": 7, "0.5": 7, "1": 7, "2": 7, "+Inf": 7}),
    **buckets(
        SECONDS, f'{GATEWAY}"miss"', {"0.0005": 0, "0.001": 0, "0.2": 0, "0.5": 2.8, "1": 2.8, "2": 3, "+Inf": 3}
    ),
    **buckets(SECONDS, f'{GATEWAY}"bypass"', {"0.0005": 0, "0.001": 0, "0.2": 0, "0.5": 0, "1": 0, "2": 0, "+Inf": 50}),
    'setpoint_tier_used_bytes{tier="memory"}': level(5e6),
    'setpoint_tier_used_bytes{tier="disk"}': level(9e9),
    'setpoint_tier_entries{tier="memory"}': level(1200),
    'setpoint_tier_evictions_total{tier="memory"}': grown(0.5),
    'setpoint_tier_expirations_total{tier="memory"}': grown(0.2),
    'setpoint_upstream_sent_total{upstream="a"}': grown(2.0),
    'setpoint_upstream_sent_total{upstream="b"}': grown(1.0),
    'setpoint_upstream_failed_total{upstream="a"}': grown(0.0),
    'setpoint_upstream_failed_total{upstream="b"}': grown(0.3),
    'setpoint_upstream_under_way{upstream="a"}': level(6),
    'setpoint_upstream_under_way{upstream="b"}': level(2),
    'setpoint_upstream_healthy{upstream="a"}': level(1),
    'setpoint_upstream_healthy{upstream="b"}': level(1),
}
# The same, of a gateway that counts by arm: nine tenths of it are the control arm's.
ARM_TRAFFIC = {
    f'setpoint_arm_{name}{{arm="{arm}"}}': series
    for arm, share in (("control", 0.9), ("treatment", 0.1))
    for name, series in {
        "requests_total": grown(10 * share),
        "hits_total": grown(7 * share),
        "errors_total": grown(0.4 * share),
        "hit_bytes_total": grown(700 * share),
        "miss_bytes_total": grown(2100 * share),
        "hit_tokens_total": grown(70 * share),
        "tokens_total": grown(280 * share),
        "evictions_total": grown(0.5 * share),
        "expirations_total": grown(0.2 * share),
        "used_bytes": level(5e6 * share),
        "entries": level(1200 * share),
    }.items()
} | {
    name: series
    for arm, share in (("control", 0.9), ("treatment", 0.1))
    for what in ("ttft", "latency")
    for name, series in buckets(
        f"setpoint_arm_{what}_seconds_bucket",
        f'arm="{arm}"',
        {
            end: below * share
            for end, below in zip(
                ("0.0005", "0.001", "0.2", "0.5", "1", "2", "+Inf"), (0, 7, 7, 9.8, 9.8, 10, 10), strict=True
            )
        },
    ).items()
}
# Written by hand for one question each.
SINGLE = {
    "restarted_total": [10.0 * i for i in range(46)] + [10.0 * i for i in range(1, 16)],  # 10 a step, from 0 again once
    'replica_total{instance="a"}': grown(3.0),
    'replica_total{instance="b"}': grown(4.0, begin=1e6),
    "gap_total": [None if i in range(40, 50) else value for i, value in enumerate(grown(2.0))],
    "not_a_number": level(math.nan),
    "infinite": level(math.inf),
    "above_one": level(1.25),
    "old": [0.5] * (STEPS + 1 - 12),  # the last 120 s ago
    "lately_old": [0.5] * (STEPS + 1 - 3),  # 30 s ago
    "once_total": [None] * STEPS + [5.0],
    'kind{a="x\\"y\\\\z"}': level(0.25),
    "hits_total": grown(0.0),
    "asked_total": grown(0.0),
}


VLLM, OTHER = 'job="v",instance="v:1"', 'job="o",instance="o:1"'
# What the presets for other people's programs read, where the pages of the samples have none of it.
PROGRAMS = {
    f"vllm:num_requests_running{{{VLLM}}}": level(3),
    f'http_requests_total{{{VLLM},handler="/v1/completions",status="2xx"}}': grown(9.0),
    f'http_requests_total{{{VLLM},handler="/v1/completions",status="5xx"}}': grown(1.0),
    f'http_requests_total{{{VLLM},handler="/health",status="2xx"}}': grown(100.0),
    f'http_requests_total{{{OTHER},handler="/v1/completions",status="5xx"}}': grown(70.0),
    "lmcache:num_lookup_hits_total": grown(30.0),  # of the older generation
    "lmcache:num_lookup_tokens_total": grown(120.0),
    'DCGM_FI_DEV_FB_USED{gpu="0"}': level(60_000),
    'DCGM_FI_DEV_FB_USED{gpu="1"}': level(20_000),
    'DCGM_FI_DEV_FB_FREE{gpu="0"}': level(20_000),
    'DCGM_FI_DEV_FB_FREE{gpu="1"}': level(60_000),
    'DCGM_FI_DEV_GPU_UTIL{gpu="0"}': level(90),
    'DCGM_FI_DEV_GPU_UTIL{gpu="1"}': level(30),
    'litellm_proxy_total_requests_metric_total{route="a"}': grown(4.0),
    'litellm_cache_hits_metric_total{model="warm"}': grown(3.0),
    'litellm_cache_misses_metric_total{model="warm"}': grown(1.0),
    'litellm_cache_misses_metric_total{model="cold"}': grown(1.0),
    **buckets("litellm_request_total_latency_metric_bucket", 'model="warm"', {"1": 0, "2": 4, "+Inf": 4}),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with backfilled(
        tmp_path_factory.mktemp("backfilled"), {**CONTRACT_TRAFFIC, **ARM_TRAFFIC, **SINGLE, **PROGRAMS}
    ) as found:
        yield found


def past(url: str, **settings: object) -> PrometheusSignals:
    return signals_of(url, clock_seconds=math.inf, **settings)


def one(url: str, query: str, signal: str = "hit_ratio", **settings: object) -> Signal:
    return past(url, queries={signal: query}, **settings).read(NOW)[signal]


class TestPrometheusSignals(SignalContract):
    @pytest.fixture(params=["setpoint", "setpoint-arms"])
    def subject(self, url: str, request: pytest.FixtureRequest) -> Subject:
        return Subject(past(url, preset=[request.param]), past(f"http://127.0.0.1:{free_port()}"), NOW)


def test_backends_of_the_gateway(url: str) -> None:
    found = past(url, preset=["setpoint"], slots=10).read(NOW)
    assert found["error_ratio"].value == pytest.approx(0.1)  # 0.3 of 3 calls a second
    assert found["running_requests"] == Signal("running_requests", 8.0, 0.0)
    assert found["utilisation"].value == pytest.approx(0.4)  # 8 of 2 x 10 slots
    assert past(url, preset=["setpoint"]).read(NOW)["utilisation"].missing == (
        "it needs signals.slots, the sequences that one backend runs"
    )


def test_arms_of_the_gateway_together_and_one_alone(url: str) -> None:
    found = past(url, preset=["setpoint-arms"]).read(NOW)
    ratios = {"byte_hit_ratio": 0.25, "token_hit_ratio": 0.25, "error_ratio": 0.04, "p99_latency_seconds": 1.5}
    assert {name: found[name].value for name in ratios} == pytest.approx(ratios)
    one_arm = past(url, preset=["setpoint-arms"], labels={"setpoint-arms": 'arm="treatment"'}).read(NOW)
    assert one_arm["requests_per_second"].value == pytest.approx(1.0)
    assert one_arm["entries"].value == pytest.approx(120.0)


def test_errors_of_vllm_are_not_those_of_others(url: str) -> None:
    assert past(url, preset=["vllm"]).read(NOW)["error_ratio"].value == pytest.approx(0.1)
    elsewhere = past(url, preset=["vllm"], labels={"vllm": 'job="o"'}).read(NOW)["error_ratio"]
    assert 'no series vllm:num_requests_running{job="o"}' in str(elsewhere.missing)


def test_older_names_of_lmcache(url: str) -> None:
    assert past(url, preset=["lmcache"]).read(NOW)["token_hit_ratio"].value == pytest.approx(0.25)


def test_gpus_count_by_their_memory(url: str) -> None:
    found = past(url, preset=["dcgm"]).read(NOW)
    assert (found["vram_ratio"].value, found["gpu_busy_ratio"].value) == (0.5, 0.6)


def test_litellm_counts_a_series_from_its_first_event_on(url: str) -> None:
    found = past(url, preset=["litellm"]).read(NOW)
    assert found["error_ratio"].value == 0.0  # no failure yet, among requests that there were
    assert found["hit_ratio"].value == pytest.approx(0.6)
    assert found["p50_latency_seconds"].value == pytest.approx(1.5)
    cold = past(url, preset=["litellm"], labels={"all": 'model="cold"'}).read(NOW)
    assert cold["hit_ratio"].value == 0.0
    assert cold["error_ratio"].missing == (
        'no series litellm_proxy_failed_requests_metric_total{model="cold"}, '
        'litellm_proxy_total_requests_metric_total{model="cold"}: see whether Prometheus scrapes it, and whether '
        "signals.labels fit"
    )


def test_labels_narrow_a_preset_down(url: str) -> None:
    found = past(url, preset=["setpoint"], labels={"setpoint": 'upstream="b"'}).read(NOW)
    assert found["running_requests"].value == 2.0
    assert found["error_ratio"].value == pytest.approx(0.3)
    assert "no series setpoint_tier_entries" in str(found["entries"].missing)
    everywhere = past(url, preset=["setpoint"], labels={"all": 'upstream=~"a|b"', "setpoint": 'upstream!="b",'})
    assert everywhere.read(NOW)["running_requests"].value == 6.0


def test_a_restart_is_no_negative_rate(url: str) -> None:
    """150 s back the counter began again at 0, and it has grown by 1 a second ever since."""
    assert one(url, "rate(restarted_total{$labels}[$window])", "requests_per_second").value == pytest.approx(1.0)


def test_a_gap_is_bridged_and_one_sample_is_no_rate(url: str) -> None:
    assert one(url, "rate(gap_total[$window])", "requests_per_second").value == pytest.approx(2.0)
    assert "a rate takes two samples" in str(one(url, "rate(once_total[$window])", "requests_per_second").missing)


def test_replicas_are_added_up_or_told_apart(url: str) -> None:
    assert one(url, "sum(rate(replica_total[$window]))", "requests_per_second").value == pytest.approx(7.0)
    several = one(url, "rate(replica_total[$window])", "requests_per_second").missing
    assert several == (
        '2 series where one value is expected ({instance="a"}, {instance="b"}, …): add them up, or name one by its '
        "labels"
    )
    named = one(url, "rate(replica_total{$labels}[$window])", "requests_per_second", labels={"all": 'instance="b"'})
    assert named.value == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("not_a_number", "not a number, as a ratio is when nothing happened: wait for traffic"),
        ("hits_total / asked_total", "not a number, as a ratio is when nothing happened: wait for traffic"),
        ("above_one", "got 1.25, expected a value in [0, 1]: the query or what it reads is wrong"),
        ("-above_one", "got -1.25, expected a value in [0, 1]: the query or what it reads is wrong"),
        ("infinite", "got inf, expected a value in [0, 1]: the query or what it reads is wrong"),
        (
            "old",
            "the sample is 120 s old, expected at most 90 s: see whether it is still taken, and whether clocks agree",
        ),
        ("nowhere", "no series nowhere{}: see whether Prometheus scrapes it, and whether signals.labels fit"),
        (
            "lately_old / nowhere",
            "no series nowhere{}: see whether Prometheus scrapes it, and whether signals.labels fit",
        ),
        (
            "rate(old[20s])",
            "its series are there but give no value: a rate takes two samples within signals.window_seconds",
        ),
        (
            "above_one > 2",
            "its series are there but give no value: a rate takes two samples within signals.window_seconds",
        ),
        ("above_one[1m]", "the query gives a matrix, expected one value at one time: add a function over it"),
    ],
)
def test_what_is_no_value_is_missing_with_the_reason(url: str, query: str, reason: str) -> None:
    assert one(url, query) == Signal("hit_ratio", missing=reason)


def test_age_is_of_the_oldest_sample_and_not_of_the_evaluation(url: str) -> None:
    assert one(url, "lately_old") == Signal("hit_ratio", 0.5, 30.0)
    assert one(url, "0 * sum(rate(replica_total[$window])) + lately_old") == Signal("hit_ratio", 0.5, 30.0)
    assert "30 s old" in str(one(url, "lately_old", max_age_seconds=20).missing)
    assert one(url, "old", max_age_seconds=120).value == 0.5


def test_of_an_alternative_one_side_is_enough(url: str) -> None:
    assert one(url, "nowhere or lately_old") == Signal("hit_ratio", 0.5, 30.0)
    assert "no series nowhere{}, elsewhere{}:" in str(one(url, "nowhere or elsewhere").missing)
    assert "no series nowhere{}:" in str(one(url, "vector(0) + on () nowhere or nowhere").missing)
    assert "no series nowhere{}:" in str(one(url, "(elsewhere or lately_old) / nowhere").missing)


def test_zero_that_is_put_in_for_a_missing_series_is_refused(url: str) -> None:
    """The idiom of dashboards would tell a guardrail that there are no errors when nobody counts them."""
    assert one(url, "nowhere or vector(0)", "error_ratio").missing == (
        "nowhere{} has no sample now, though the query has a value: its exporter is gone or not scraped, and the "
        "window still knows it, or something stands in for it"
    )


def test_labels_with_quotes_survive_the_way_to_their_age(url: str) -> None:
    assert one(url, r'kind{a="x\"y\\z"}') == Signal("hit_ratio", 0.25, 0.0)
    assert one(url, r'kind{a=~"x.y\\\\z"}') == Signal("hit_ratio", 0.25, 0.0)


def test_of_two_presets_the_first_counts_and_settings_before_both(url: str) -> None:
    both = past(url, preset=["vllm", "setpoint"], queries={"entries": "above_one", "used_bytes": ""})
    assert both.asked["p99_ttft_seconds"].origin == "vllm"
    assert both.asked["evictions_per_second"].origin == "setpoint"
    assert both.asked["entries"].origin == "settings"
    found = both.read(NOW)
    assert found["entries"].value == 1.25
    assert found["used_bytes"].missing == "no query: add a preset that has one, or signals.queries.used_bytes"


@pytest.mark.parametrize("name", presets())
def test_prometheus_takes_every_query_of_every_preset(url: str, name: str) -> None:
    """And every question for an age that is made of it."""
    asked = past(url, preset=[name], slots=4, labels={"all": 'job="a"'}).asked
    assert set(asked) == set(presets()[name].queries)
    with PrometheusServer(url).inquiry(PATIENT_SECONDS) as inquiry:
        for query in asked.values():
            assert query.reads is not None
            assert list(query.reads.selectors())
            assert all('job="a"' in selector for selector in query.reads.selectors())
            for text in (query.query, *map(age_query, query.reads.selectors())):
                inquiry.ask(text, NOW)  # raises what Prometheus has against it


def test_ages_are_asked_together_and_apart_where_one_is_wrong(url: str) -> None:
    """Rust takes this pattern, Prometheus 2 does not: the signal that it belongs to is missing, the others are not."""
    names = list(SIGNALS)[:14]
    source = past(url, preset=[], queries={name: f"above_one + 0 * {name}_" for name in names[:-2]} | {
        names[-1]: r'above_one{a!~"(?x)b"}', names[-2]: "lately_old",
    })  # fmt: skip
    found = source.read(NOW)
    assert found[names[-2]] == Signal(names[-2], 0.5, 30.0)
    assert "refused the query" in str(found[names[-1]].missing)
    assert all(f"no series {name}_{{}}:" in str(found[name].missing) for name in names[:-2])


def test_quantiles_are_those_of_prometheus(url: str) -> None:
    chance = random.Random(7)
    with PrometheusServer(url).inquiry(PATIENT_SECONDS) as inquiry:
        for _ in range(40):
            bounds = sorted(chance.sample([0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0], chance.randint(1, 6)))
            counts = [chance.choice([0, 0, 1, 3, chance.randint(1, 500)]) for _ in range(len(bounds) + 1)]
            ends = [*map(str, bounds), "+Inf"]
            cumulative = [sum(counts[: i + 1]) for i in range(len(counts))]
            vector = " or ".join(
                f'label_replace(vector({count}), "le", "{end}", "", "")'
                for end, count in zip(ends, cumulative, strict=True)
            )
            for share in (0.5, 0.95, 0.99):
                (theirs,) = inquiry.ask(f"histogram_quantile({share}, {vector})", NOW)
                ours = quantile(Histogram(tuple(bounds), tuple(counts), 0.0), share)
                assert ours == (None if math.isnan(theirs.value) else pytest.approx(theirs.value))
