"""What the size of a prefix cache is worth in each place where its blocks can live, on recorded chat traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import ROOT, SHARED_TRACES, Benchmark, Cell, Goal, Report, Table, main, say
from benchmarks.workloads import first
from caches.knobs import Knob, KnobSettings, KnobSpace
from envs.interval import COLUMN, total_usd
from envs.prefix import PrefixConfig
from envs.reward import Constraints, Prices
from envs.serving import Serving, load_profile
from envs.units import GIB
from envs.world import Problem, World
from traces.catalog import load_trace
from traces.trace import Trace
from tuner.whatif_result import knee_of

Array = NDArray[Any]
MOONCAKE = SHARED_TRACES / "llm" / "mooncake_conversation.part1.jsonl.gz"
PICTURE = ROOT / "out" / "benchmarks" / "prefix-placements.png"
PROFILES = ("qwen2.5-7b-a100", "qwen-7b-a100")
REPLICAS = 8
CONSTRAINTS = Constraints(p99_ttft_seconds=12.0)
KNEE_HEIGHT = 0.02  # of the curve's height: less is no knee
TRIVIAL_SHARE = 0.01  # sizes whose costs differ by less than this make a knob that does not matter
PLACES: dict[str, PrefixConfig] = {
    "shared": PrefixConfig(placement="shared"),
    "reserved": PrefixConfig(placement="reserved"),
    "host": PrefixConfig(placement="host"),
    "host over SSD": PrefixConfig(placement="host", below_gib=2_048.0),
}
SHOWN = (
    ("USD per 1,000 requests", "usd_per_1000"),
    ("token hit ratio", "token_hit_ratio"),
    ("share of VRAM in use", "vram_ratio"),
    ("P99 TTFT (s)", "p99_ttft_seconds"),
)


@dataclass(frozen=True)
class Curve:
    """One placement and profile over sizes; all of shape (sizes,)."""

    place: str
    profile: str
    size_gib: Array
    usd_per_1000: Array
    token_hit_ratio: Array
    vram_ratio: Array
    p99_ttft_seconds: Array

    @property
    def best(self) -> int:
        return int(np.argmin(self.usd_per_1000))

    @property
    def knee(self) -> int | None:
        """Of the token hit ratio over the logarithm of size."""
        return knee_of(np.log(self.size_gib), self.token_hit_ratio, KNEE_HEIGHT)

    @property
    def trivial(self) -> bool:
        return bool(np.ptp(self.usd_per_1000) < TRIVIAL_SHARE * self.usd_per_1000.min())


def curve(trace: Trace, place: str, profile_name: str, sizes: int) -> Curve:
    """The first half of the trace fills the cache, the second is measured as one interval."""
    profile, where = load_profile(profile_name), PLACES[place]
    vram = (profile.vram_gib - profile.weights_gib) * REPLICAS
    gib = np.geomspace(4.0, 0.98 * vram if where.placement != "host" else 4_096.0, sizes)
    knobs = KnobSpace(
        Knob("cache_size", "bytes", gib[0] * GIB, gib[-1] * GIB, gib[0] * GIB, 0.1, "log"),
        Knob("ttl_seconds", "seconds", 1.0, 86_400.0, 86_400.0, 0.1, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
    )
    half = trace.span_seconds / 2 * (1 - 1e-9)
    problem = Problem(trace, half, knobs, Prices(), CONSTRAINTS, profile, Serving(replicas=REPLICAS), prefix=where)
    world = World(problem, threads=2)
    row = world.replay_static([KnobSettings(size * GIB, 86_400.0, 0.0) for size in gib], 2)[:, 1]
    return Curve(
        place,
        profile_name,
        gib,
        1000.0 * total_usd(row) / row[:, COLUMN["requests"]],
        *(row[:, COLUMN[name]] for name in ("token_hit_ratio", "vram_ratio", "p99_ttft_seconds")),
    )


def draw(curves: list[Curve], path: Path) -> None:
    """A column per placement, a row per quantity; the best size is marked, and the knee by a line."""
    places = list(PLACES)
    figure, grid = plt.subplots(len(SHOWN), len(places), figsize=(12, 11), sharex="col", sharey="row", squeeze=False)
    for one in curves:
        column = places.index(one.place)
        for row, (label, name) in enumerate(SHOWN):
            axes, values = grid[row, column], getattr(one, name)
            color = f"C{PROFILES.index(one.profile)}"
            axes.plot(one.size_gib, values, color=color, label=one.profile)
            axes.plot(one.size_gib[one.best], values[one.best], "o", color=color, markersize=7)
            if row == 1 and one.knee is not None:
                axes.axvline(one.size_gib[one.knee], color=color, linestyle=":", linewidth=1)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_yscale("log" if name == "p99_ttft_seconds" else "linear")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            if column == 0:
                axes.set_ylabel(label)
        grid[0, column].set_title(one.place)
        grid[-1, column].set_xlabel("cache_size (GiB)")
    grid[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle("Prefix cache on Mooncake's conversations: circle = cheapest size, dotted = knee of the hit ratio")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def row_of(one: Curve) -> list[Cell]:
    best, knee = one.best, one.knee
    inside = 0 < best < len(one.size_gib) - 1
    meaning = "does not matter" if one.trivial else "inside" if inside else "smallest" if best == 0 else "largest"
    return [
        one.place,
        one.profile,
        f"{one.size_gib[best]:,.0f}",
        meaning,
        f"{one.usd_per_1000[best]:.4f}",
        f"{one.usd_per_1000[0]:.4f}",
        f"{one.usd_per_1000[-1]:.4f}",
        None if knee is None else f"{one.size_gib[knee]:,.0f}",
        f"{one.token_hit_ratio[best]:.3f} of {one.token_hit_ratio[-1]:.3f}",
        f"{one.vram_ratio[best]:.2f}",
        f"{one.p99_ttft_seconds[best]:.2f}",
    ]


def measure(quick: bool) -> Report:
    if not MOONCAKE.exists():
        return Report([f"Not run: {MOONCAKE.name} is not beside the repository."], [], [])
    trace = load_trace(MOONCAKE)
    if quick:
        trace = replace(first(trace, 400), **_chains(trace, 400))
    curves = []
    for place in PLACES:
        for profile in PROFILES:
            say(f"{place}, {profile}")
            curves.append(curve(trace, place, profile, 4 if quick else 25))
    draw(curves, PICTURE)
    header = (
        *("placement", "profile", "best size (GiB)", "optimum", "USD per 1,000 at best", "at smallest", "at largest"),
        *("knee (GiB)", "token hit ratio at best, of largest", "VRAM", "P99 TTFT (s)"),
    )
    facts = [
        f"Mooncake conversations, part 1: {len(trace):,} requests. The first half fills the cache, the second is "
        "measured.",
        f"{REPLICAS} GPUs, no limit of lifetime, no warm-up; prices as in docs/configuration.md, a request past "
        f"{CONSTRAINTS.p99_ttft_seconds:g} s to its first token counts as slow. VRAM sizes are over all GPUs.",
    ]
    table = Table("Where the optimum of cache_size lies", header, [row_of(one) for one in curves])
    rented = [one for one in curves if PLACES[one.place].placement == "host" and not PLACES[one.place].below_gib]
    inside = [one.profile for one in rented if 0 < one.best < len(one.size_gib) - 1]
    found = f"for {' and '.join(inside) or 'none'} of {' and '.join(one.profile for one in rented)}"
    goals = [Goal("shown whether rented memory has an optimum inside the range", found, None)]
    return Report(facts, [table], goals)


def _chains(trace: Trace, requests: int) -> dict[str, Any]:
    """The optional columns of a prompt's blocks and tokens for the first requests."""
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    offsets = trace.block_offsets[: requests + 1]
    return {
        "block_offsets": offsets,
        "block_hashes": trace.block_hashes[: offsets[-1]],
        "prompt_tokens": trace.prompt_tokens[:requests],
        "output_tokens": trace.output_tokens[:requests],
    }


if __name__ == "__main__":
    main(
        Benchmark(
            "placements",
            "Prefix caches: where the size is worth something",
            ("setpoint", "numba", "numpy"),
            measure,
        )
    )
