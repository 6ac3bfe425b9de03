"""A synthetic workload in sentences, for the trace's metadata."""

from __future__ import annotations

from traces.synthetic.parts import SyntheticWorkload


def assumptions(workload: SyntheticWorkload, seed: int) -> tuple[str, ...]:
    """One sentence per part; the first says that nothing was recorded."""
    return (
        f"Synthetic: every request was drawn (seed {seed}), none recorded.",
        *_regular(workload),
        *_events(workload),
        *_lengths(workload),
    )


def _regular(workload: SyntheticWorkload) -> list[str]:
    rate, popularity = workload.rate, workload.popularity
    lines = [
        f"Arrivals are Poisson, mean {rate.mean_rps:g} requests/s, daily amplitude {rate.daily_amplitude:g} "
        f"with the peak at hour {rate.peak_hour:g}, weekend factor {rate.weekend_factor:g}.",
        f"Popularity is Zipf with exponent {popularity.alpha:g} over {popularity.num_keys:,} keys.",
    ]
    if workload.drift is not None:
        share = workload.drift.reshuffled_per_hour
        lines.append(f"Popularity drifts: {share:.3g} of the ranks get another key each hour.")
    if workload.sessions is not None:
        s = workload.sessions
        openings = f"{s.num_openings:,} shared openings" if s.num_openings else "no shared openings"
        lines.append(
            f"Multi-turn sessions take {s.share:.3g} of the catalogue's traffic: {s.mean_turns:g} turns on "
            f"average, {s.think_time_seconds:g} s think time, retry probability {s.retry_probability:g}, "
            f"{openings}, blocks of {s.block_size_tokens} tokens."
        )
    return lines


def _events(workload: SyntheticWorkload) -> list[str]:
    launches = [f"A model launch at hour {e.at_hours:g} makes every key new." for e in workload.launches]
    crowds = [
        f"A flash crowd at hour {e.at_hours:g} multiplies traffic by {e.multiplier:g} for "
        f"{e.duration_hours:g} h; the surplus asks for {e.num_keys:,} keys of its own."
        for e in workload.flash_crowds
    ]
    scans = [
        f"A scan at hour {e.at_hours:g} sends {e.rps:g} requests/s for {e.duration_hours:g} h, "
        "each for a key never seen again."
        for e in workload.scans
    ]
    return launches + crowds + scans


def _lengths(workload: SyntheticWorkload) -> list[str]:
    sizes, tokens = workload.sizes, workload.tokens
    return [
        f"Sizes are lognormal per key: median {sizes.median_bytes:g} bytes, sigma {sizes.sigma:g}.",
        f"Tokens are lognormal per key, independent of size: "
        f"prompt median {tokens.prompt_median:g}, sigma {tokens.prompt_sigma:g}; "
        f"output median {tokens.output_median:g}, sigma {tokens.output_sigma:g}.",
    ]
