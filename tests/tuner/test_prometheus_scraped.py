"""Signals from a real Prometheus that scrapes: programs come, go, begin anew and report nonsense.

One Prometheus for all, since it takes its time to begin: each test has programs of its own, as a job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from tests.servers import wait_until
from tests.tuner.prometheus_parts import Page, scraping, signals_of
from tuner.prometheus.source import PrometheusSignals
from tuner.signals import Signal

SAMPLES = Path(__file__).parent / "samples"
FAR = 1e6  # from zero, at which Prometheus cuts rates off
VLLM = (SAMPLES / "vllm.prom").read_text(encoding="utf-8")
REDIS = (SAMPLES / "redis_exporter.prom").read_text(encoding="utf-8")


class Program:
    """It has a gauge and a counter, as prometheus_client serves them."""

    def __init__(self, port: int = 0) -> None:
        registry = CollectorRegistry()
        self.level = Gauge("level", "A gauge.", registry=registry)
        self.events = Counter("events", "A counter.", registry=registry)
        self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
        self.port: int = self._server.server_port

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def grown(page: str, by: Mapping[str, float]) -> str:
    """A page whose samples are larger by so much, by the beginning of their line."""
    lines = []
    for line in page.splitlines():
        start, _, value = line.rpartition(" ")
        amount = sum(amount for name, amount in by.items() if line.startswith(name))
        lines.append(f"{start} {float(value) + amount}" if amount else line)
    return "\n".join([*lines, ""])


VLLM_COUNTERS = ("request_", "prefix_cache_", "e2e_request_latency_seconds_", "time_to_first_token_seconds_")
VLLM_BEGAN = grown(VLLM, {f"vllm:{name}": FAR for name in VLLM_COUNTERS})
REDIS_BEGAN = grown(REDIS, {"redis_keyspace_": FAR})


class World:
    """Programs and pages by job, and the Prometheus that scrapes them."""

    def __init__(self, folder: Path) -> None:
        self.programs = {job: [Program() for _ in range(2)] for job in ("replicas", "goes", "restarts", "nonsense")}
        self.pages = {
            "vllm": [Page(VLLM_BEGAN)],
            "redis": [
                Page(REDIS_BEGAN),
                Page(grown(REDIS_BEGAN, {"redis_memory_used_bytes": 1000, 'redis_db_keys{db="db7"': 4})),
            ],
        }
        for program in self.programs["restarts"]:
            program.events.inc(FAR)
        both = {**self.programs, **self.pages}
        self._running = scraping(folder, {job: [one.port for one in found] for job, found in both.items()})
        self.url = self._running.__enter__().url

    def stop(self) -> None:
        self._running.__exit__(None, None, None)
        for found in (*self.programs.values(), *self.pages.values()):
            for one in found:
                one.stop()

    def signals(self, job: str, **settings: object) -> PrometheusSignals:
        return signals_of(self.url, labels={"all": f'job="{job}"'}, **settings)

    def watched(self, job: str) -> PrometheusSignals:
        queries = {
            "entries": "sum(level{$labels})",
            "requests_per_second": "sum(rate(events_total{$labels}[$window]))",
            "used_bytes": "level{$labels}",
        }
        return self.signals(job, queries=queries, window_seconds=20)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = World(tmp_path_factory.mktemp("scraped"))
    yield found
    found.stop()


def soon(source: PrometheusSignals, is_so: Callable[[Mapping[str, Signal]], bool], what: str) -> Mapping[str, Signal]:
    """A reading for which it is so; scrapes take their time, and may fail on a busy machine."""
    readings: list[Mapping[str, Signal]] = []

    def look() -> bool:
        readings[:] = [source.read(time.time())]
        return is_so(readings[0])

    wait_until(look, what)
    return readings[0]


def soon_has(source: PrometheusSignals, **expected: float) -> Mapping[str, Signal]:
    def has(found: Mapping[str, Signal]) -> bool:
        return {name: found[name].value for name in expected} == pytest.approx(expected)

    return soon(source, has, f"{expected}")


def soon_misses(source: PrometheusSignals, name: str, beginning: str) -> Mapping[str, Signal]:
    return soon(source, lambda found: str(found[name].missing).startswith(beginning), f"{name}: {beginning}")


def test_two_replicas_of_which_one_goes_away(world: World) -> None:
    programs = world.programs["replicas"]
    for program, value in zip(programs, (3.0, 4.0), strict=True):
        program.level.set(value)
    source = world.watched("replicas")
    found = soon_has(source, entries=7.0)
    assert found["entries"].age_seconds is not None
    assert found["entries"].age_seconds < 20.0
    soon_misses(source, "used_bytes", "2 series where one value is expected")
    programs.pop().stop()
    soon_has(source, entries=3.0, used_bytes=3.0)


def test_a_program_that_is_gone_leaves_no_value_though_the_window_has_one(world: World) -> None:
    source, programs = world.watched("goes"), world.programs["goes"]

    def counts(found: Mapping[str, Signal]) -> bool:
        for program in programs:
            program.events.inc()
        return (found["requests_per_second"].value or 0.0) > 0.0

    soon(source, counts, "a rate")
    while programs:
        programs.pop().stop()
    found = soon(source, lambda now: now["requests_per_second"].value is None, "the rate to be gone")
    assert found["requests_per_second"].missing == (
        'events_total{job="goes"} has no sample now, though the query has a value: its exporter is gone or not scraped'
        ", and the window still knows it, or something stands in for it"
    )
    soon_misses(source, "entries", 'no series level{job="goes"}')


def test_a_program_that_begins_anew_makes_no_negative_rate(world: World) -> None:
    source, programs = world.watched("restarts"), world.programs["restarts"]
    soon_has(source, requests_per_second=0.0)  # two scrapes, and nothing happened between
    before = programs.pop()
    before.stop()
    programs.append(Program(before.port))
    programs[-1].events.inc(3)
    found = soon(source, lambda now: bool(now["requests_per_second"].value), "a rate")
    assert 0.0 < (found["requests_per_second"].value or 0.0) < 10.0  # of three events, extrapolated, not of a million


def test_a_gauge_that_is_not_a_number(world: World) -> None:
    source, programs = world.watched("nonsense"), world.programs["nonsense"]
    soon_has(source, entries=0.0)  # measured, and zero
    programs[0].level.set(math.nan)
    soon_misses(source, "entries", "not a number")
    programs[0].level.set(math.inf)
    soon_misses(source, "entries", "got inf, expected at least 0, finite")
    programs[0].level.set(-2.0)
    soon_misses(source, "entries", "got -2, expected at least 0, finite")
    programs[0].level.set(2.0)
    soon_has(source, entries=2.0)


def test_the_preset_for_vllm_reads_the_page_of_a_real_vllm(world: World) -> None:
    """Gauges as they are on the page; counters then grow by hand, so that every ratio of two can be worked out."""
    source, (page,) = world.signals("vllm", preset=["vllm"], slots=8), world.pages["vllm"]
    soon_has(source, running_requests=0.0, waiting_requests=0.0, kv_usage_ratio=0.0, requests_per_second=0.0)
    soon_misses(source, "p99_ttft_seconds", "not a number")
    soon_misses(source, "error_ratio", "no series http_requests_total")
    grows = {
        "num_requests_running": 6,
        "num_requests_waiting": 3,
        "kv_cache_usage_perc": 0.25,
        "request_success_total": 4,
        "prefix_cache_queries_total": 200,
        "prefix_cache_hits_total": 50,
        "request_queue_time_seconds_sum": 0.5,
        "request_queue_time_seconds_count": 4,
        "request_prompt_tokens_sum": 400,
        "request_prompt_tokens_count": 4,
        "request_generation_tokens_sum": 100,
        "request_generation_tokens_count": 4,
        # four more requests, all with a first token within (0.25, 0.5] s and an end within 1 s
        "e2e_request_latency_seconds_bucket": 4,
        **{
            f'time_to_first_token_seconds_bucket{{le="{end}"': 4
            for end in ("0.5", "0.75", "1.0", "2.5", "5.0", "7.5", "10.0", "+Inf")
        },
    }
    page.text = grown(VLLM_BEGAN, {f"vllm:{name}": amount for name, amount in grows.items()})
    found = soon_has(
        source,
        token_hit_ratio=50 / 200,
        mean_wait_seconds=0.125,
        prompt_tokens=100.0,
        output_tokens=25.0,
        waiting_requests=3.0,
        running_requests=6.0,
        utilisation=6 / 8,
        kv_usage_ratio=0.25,
        p50_ttft_seconds=0.25 + 0.25 * 0.5,
        p99_ttft_seconds=0.25 + 0.25 * 0.99,
        p50_latency_seconds=0.5,
        p99_latency_seconds=0.99,
    )
    assert (found["requests_per_second"].value or 0.0) > 0.0


def test_the_preset_for_redis_reads_the_pages_of_two_real_exporters(world: World) -> None:
    source, pages = world.signals("redis", preset=["redis"]), world.pages["redis"]
    used = 2 * 1.04004e6 + 1000
    soon_has(source, used_bytes=used, fill_ratio=used / (2 * 64 * 2**20), entries=3 + 3 + 4, evictions_per_second=0.0)
    soon_misses(source, "hit_ratio", "not a number")  # nothing was looked up
    for page in pages:
        page.text = grown(page.text, {"redis_keyspace_hits_total": 30, "redis_keyspace_misses_total": 10})
    soon_has(source, hit_ratio=0.75)
    for page in pages:
        page.text = grown(page.text, {"redis_memory_max_bytes": -64 * 2**20})  # no limit, as Redis says it
    soon_misses(source, "fill_ratio", "got inf")
