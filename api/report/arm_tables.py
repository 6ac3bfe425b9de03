"""The numbers behind the pictures of both arms, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from agents.units import readable, usd
from api.report.arm_charts import seconds
from api.report.page import PageTable
from caches.target import Arm
from tuner.account import Totals, usd_per_1000, value
from tuner.records import IntervalRecord

NONE = "–"
COLUMNS = (
    "interval, UTC",
    "arm",
    "requests",
    "USD per 1,000",
    "hit ratio",
    "P99 first token",
    "P99 answer",
    "size",
    "TTL",
    "warm-up",
)


def intervals_table(records: Sequence[IntervalRecord], most: int) -> PageTable:
    """The newest, newest first. What is not known is a dash."""
    newest = sorted(records, key=lambda one: (-one.index, one.arm))[:most]
    rows = tuple(_row(one) for one in newest)
    return PageTable(
        f"The newest {len(newest)} of {len(records)} rows: one per arm and interval", COLUMNS, rows, frozenset({"arm"})
    )


def totals_table(totals: dict[Arm, Totals]) -> PageTable:
    rows = []
    for arm, one in totals.items():
        rows.append(
            (
                arm.value,
                f"{one.known:,} of {one.intervals:,}",
                NONE if one.requests is None else f"{one.requests:,.0f}",
                NONE if one.usd is None else usd(one.usd),
                NONE if one.usd_per_1000 is None else usd(one.usd_per_1000),
                NONE if one.hit_ratio is None else f"{one.hit_ratio:.4f}",
                NONE if one.p99_ttft_seconds is None else seconds(one.p99_ttft_seconds),
                NONE if one.p99_latency_seconds is None else seconds(one.p99_latency_seconds),
                NONE if one.stale_ratio is None else f"{one.stale_ratio:.2%}",
            )
        )
    columns = (
        "arm",
        "intervals known",
        "requests",
        "USD",
        "USD per 1,000",
        "hit ratio",
        "P99 first token",
        "P99 answer",
        "outdated hits",
    )
    return PageTable("Both arms over the whole experiment", columns, tuple(rows))


def _row(record: IntervalRecord) -> tuple[str, ...]:
    cost, requests, hits = usd_per_1000(record), value(record, "requests"), value(record, "hit_ratio")
    ttft, latency = value(record, "p99_ttft_seconds"), value(record, "p99_latency_seconds")
    return (
        f"{datetime.fromtimestamp(record.began_seconds, UTC):%d %b %H:%M:%S}",
        record.arm.value,
        NONE if requests is None else f"{requests:,.0f}",
        NONE if cost is None else usd(cost),
        NONE if hits is None else f"{hits:.3f}",
        NONE if ttft is None else seconds(ttft),
        NONE if latency is None else seconds(latency),
        readable(record.settings.cache_size, "bytes"),
        readable(record.settings.ttl_seconds, "s"),
        f"{100 * record.settings.warmup_ratio:.3g} %",
    )
