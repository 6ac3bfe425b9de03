"""Makes the board for Grafana: `python deploy/grafana/board.py` writes setpoint.json beside this file.

What is on it is a table, `ROWS`; grafana-foundation-sdk makes JSON of that. The tests put every query to a real
Prometheus, and hold the file to this script.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    LineInterpolation,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

FILE = Path(__file__).with_name("setpoint.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 8, 8  # of a panel; a row is 24 wide
OF_CACHE = '{cache=~"$cache"}'


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """unit: by Grafana's names. states: drawn as steps, since nothing lies between."""

    title: str
    told: str
    unit: str
    queries: tuple[Query, ...]
    states: bool = False


def tuner(name: str, legend: str) -> tuple[Query, ...]:
    """A gauge of the daemon, of the active one where several tell it."""
    labels = "cache" if "{{arm}}" not in legend else "cache, arm"
    return (Query(f"max by ({labels}) (setpoint_tuner_{name}{OF_CACHE})", legend),)


BY_ARM, BY_CACHE = "{{cache}} {{arm}}", "{{cache}}"
MONEY = "currencyUSD"
ROWS: dict[str, tuple[Panel, ...]] = {
    "What clients get": (
        Panel(
            "Hit ratio",
            "Hits over all requests that the cache may answer.",
            "percentunit",
            (
                Query("job:setpoint_gateway_hit_ratio:rate5m", "5 minutes"),
                Query("job:setpoint_gateway_hit_ratio:rate1d", "a day"),
            ),
        ),
        Panel(
            "Requests by outcome",
            "hit-l1 to hit-l3: from a tier; miss: from the backend; bypass: not the cache's; refused: by the gateway.",
            "reqps",
            (Query("sum by (outcome) (rate(setpoint_gateway_requests_total[$__rate_interval]))", "{{outcome}}"),),
        ),
        Panel(
            "P99 of the response",
            "To the answer, or to the beginning of a stream.",
            "s",
            (
                Query("job:setpoint_gateway_response_seconds:p99_5m", "gateway"),
                Query(f"max by (cache, arm) (setpoint_tuner_p99_ttft_seconds{OF_CACHE})", "tuner: {{arm}}"),
                Query(f"max by (cache) (setpoint_tuner_p99_ttft_objective_seconds{OF_CACHE})", "objective"),
            ),
        ),
        Panel(
            "Bytes held",
            "By tier.",
            "bytes",
            (Query("sum by (tier) (setpoint_tier_used_bytes)", "{{tier}}"),),
        ),
        Panel(
            "Tiers that fail",
            "Calls that failed or took too long, and those that a breaker kept back.",
            "ops",
            (
                Query("sum by (tier) (rate(setpoint_tier_failed_total[$__rate_interval]))", "{{tier}} failed"),
                Query("sum by (tier) (rate(setpoint_tier_skipped_total[$__rate_interval]))", "{{tier}} kept back"),
            ),
        ),
        Panel(
            "Stages over their budget",
            "Of a gateway with [tracing]: passes that took longer than their part of the objective.",
            "percentunit",
            (Query("job_stage:setpoint_gateway_stage_over_budget:ratio_rate15m", "{{stage}}"),),
        ),
    ),
    "Money": (
        Panel(
            "Cost of 1,000 requests",
            "In the last interval, by arm.",
            MONEY,
            tuner("cost_usd_per_1000_requests", BY_ARM),
        ),
        Panel(
            "Cost by cause",
            "USD an hour.",
            MONEY,
            (
                Query(
                    f"3600 * sum by (cache, cause) (rate(setpoint_tuner_cost_usd_total{OF_CACHE}[1h]))",
                    "{{cache}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "Regret",
            "What 1,000 requests cost lately beyond the cheapest fixed setting of the ghost grid.",
            MONEY,
            tuner("regret_usd_per_1000_requests", BY_CACHE),
        ),
    ),
    "Traffic": (
        Panel("Entropy", "Of the keys asked for.", "short", tuner("entropy_bits", BY_CACHE)),
        Panel("Drift", "From the interval before, 0 to 1 bit.", "short", tuner("drift_bits", BY_CACHE)),
        Panel("Hit ratio by arm", "In the last interval.", "percentunit", tuner("hit_ratio", BY_ARM)),
    ),
    "Settings": (
        Panel("Capacity", "Of the plan, stated for the whole cache.", "bytes", tuner("cache_size_bytes", BY_ARM), True),
        Panel("Lifetime", "Of an entry.", "s", tuner("ttl_seconds", BY_ARM), True),
        Panel("Warm-up", "Share of the remembered requests.", "percentunit", tuner("warmup_ratio", BY_ARM), True),
    ),
    "Rollout": (
        Panel(
            "Phase",
            "The one that the rollout is in.",
            "short",
            (Query(f"max by (cache, phase) (setpoint_tuner_phase{OF_CACHE}) == 1", "{{cache}} {{phase}}"),),
            True,
        ),
        Panel("Share of the keys", "By arm.", "percentunit", tuner("share_ratio", BY_ARM), True),
        Panel(
            "Decisions by verdict",
            "An hour.",
            "short",
            (
                Query(
                    f"sum by (cache, arm, verdict) (increase(setpoint_tuner_decisions_total{OF_CACHE}[1h]))",
                    "{{cache}} {{arm}} {{verdict}}",
                ),
            ),
        ),
        Panel(
            "Guardrails",
            "1: it does not allow a change.",
            "short",
            (
                Query(
                    f"max by (cache, arm, guardrail) (setpoint_tuner_guardrail_active{OF_CACHE})",
                    "{{cache}} {{arm}} {{guardrail}}",
                ),
            ),
            True,
        ),
        Panel(
            "Held or rolled back",
            "1 while it is.",
            "short",
            (
                Query(f"max by (cache) (setpoint_tuner_paused{OF_CACHE})", "{{cache}} held"),
                Query(f"max by (cache) (setpoint_tuner_rollback_latched{OF_CACHE})", "{{cache}} rolled back"),
            ),
            True,
        ),
        Panel(
            "Who decides",
            "Policy, version and mode.",
            "short",
            (
                Query(
                    f"max by (cache, arm, policy, version, mode) (setpoint_tuner_policy_info{OF_CACHE})",
                    "{{cache}} {{arm}}: {{policy}} {{version}}, {{mode}}",
                ),
            ),
            True,
        ),
    ),
    "The tuner itself": (
        Panel(
            "Active daemons",
            "1 for each cache that is tuned.",
            "short",
            (
                Query(f"sum by (cache) (setpoint_tuner_lease_held{OF_CACHE})", "{{cache}} active"),
                Query(f"max by (cache) (setpoint_tuner_fence{OF_CACHE})", "{{cache}} fence"),
            ),
            True,
        ),
        Panel(
            "Since the last good interval",
            "Longer than three intervals: it is blind.",
            "s",
            (Query(f"cache:setpoint_tuner_blind_seconds{OF_CACHE}", BY_CACHE),),
        ),
        Panel(
            "P99 of a tick",
            "Of those that decided.",
            "s",
            (
                Query(
                    "histogram_quantile(0.99, sum by (cache, le) (rate(setpoint_tuner_tick_duration_seconds_bucket"
                    '{cache=~"$cache", did="decided"}[1h])))',
                    BY_CACHE,
                ),
            ),
        ),
        Panel(
            "Intervals",
            "An hour, recorded and missed.",
            "short",
            (
                Query(
                    f"sum by (cache, result) (increase(setpoint_tuner_intervals_total{OF_CACHE}[1h]))",
                    "{{cache}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Alerts",
            "Those that fire, and those that will if it goes on.",
            "short",
            (
                Query(
                    'count by (alertname, alertstate) (ALERTS{alertname=~"Setpoint.*"})',
                    "{{alertname}} {{alertstate}}",
                ),
            ),
            True,
        ),
    ),
}


def board() -> dict[str, Any]:
    """As Grafana reads it."""
    made = (
        builders.Dashboard("Setpoint")
        .uid("setpoint")
        .tags(["setpoint"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            builders.QueryVariable("cache")
            .label("Cache")
            .query("label_values(setpoint_tuner_lease_held, cache)")
            .datasource(SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .multi(True)
        )
    )
    for title, panels in ROWS.items():
        made = made.with_row(builders.Row(title))
        for panel in panels:
            made = made.with_panel(_panel(panel))
    found: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    return found


def text() -> str:
    return json.dumps(board(), indent=2, sort_keys=True) + "\n"


def _panel(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.told)
        .unit(panel.unit)
        .datasource(SOURCE)
        .span(WIDTH)
        .height(HEIGHT)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if panel.states:
        made = made.line_interpolation(LineInterpolation.STEP_AFTER)
    for number, query in enumerate(panel.queries):
        made = made.with_target(
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number)).range()
        )
    return made


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
