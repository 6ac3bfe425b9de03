"""What a reader needs to know to run the benchmark of techniques, and to price its figures otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.technique_backend import LOGPROB_TOKENS, PROFILE, SMALLER_WORK
from benchmarks.technique_catalog import WHERE
from benchmarks.technique_client import AWAY_SECONDS, OBJECTIVE_SECONDS, REPORTED_SHARE
from benchmarks.technique_runs import DEADLINE_SECONDS, FAILED_USD, PRICES, WRONG_USD
from benchmarks.technique_traffic import SLOTS
from benchmarks.technique_wordings import CHANGED_SHARE, PER_SECOND, PICTURED_SHARE, PROMPT_TOKENS, pairs
from benchmarks.technique_workloads import (
    CHANGE_SECONDS,
    CHANGES_IN_SPAN,
    CHANGING_PER_SECOND,
    CROWDED_PER_SECOND,
    DOWN,
    DROPPED_SHARE,
    FLUSH,
    HOTTEST,
    LIFETIMES_IN_SPAN,
    LOGPROBS_SHARE,
    ROOM,
    SAMPLED_SHARE,
    SHIPPED,
    SLOW,
    SLOW_FACTOR,
    STREAMED_SHARE,
    TEMPERATURE,
    TROUBLED_KEYS,
    TROUBLED_PER_SECOND,
    TROUBLED_TTL_SECONDS,
    WRONG_SHARE,
)

TITLES: Mapping[str, str] = {
    "wordings": "Wordings: paraphrases and traps, half of them written differently",
    "changing": "Changing: answers of four namespaces that change at different rates",
    "crowded": f"Crowded: memory for {100.0 * ROOM:g} % of what is asked for",
    "troubled": "Troubled: slow, down, flushed, wrong requests, broken streams",
}


def facts(requests: Mapping[str, int], seeds: Sequence[int]) -> list[str]:
    stale, slow = PRICES.stale_answer_usd, PRICES.slow_request_usd
    numbers = ", ".join(f"{name} {number:,}" for name, number in requests.items())
    return [
        f"Requests a run: {numbers}; seeds {seeds[0]} to {seeds[-1]} of traffic, changes and draws; techniques take "
        "turns on the same traffic. The gateway is the application itself, called in this process without sockets, and "
        "its backend is in the place of its connections. Time is virtual: it passes only where something waits, so "
        "latencies are what queues and tokens make them, and a hit takes none.",
        f"Backend: profile {PROFILE}, a request takes one of {SLOTS} slots for prompt / prefill + output x time of a "
        "token. Each "
        "answer says what it answers and which version of the truth it knows, so wrong (of another meaning) and stale "
        "(of a version before the one that held when it was asked for) are counted, not estimated.",
        f"Cost: GPU seconds at USD {PRICES.gpu_usd_per_hour:g} an hour, a stale answer USD {stale:g}, a request that "
        f"took {OBJECTIVE_SECONDS:g} s more than an idle backend does USD {slow:g}. Not in the product's prices, "
        f"assumed here: a wrong answer as a stale one (USD {WRONG_USD:g}), a failed request as a slow one (USD "
        f"{FAILED_USD:g}). Memory is not priced. A failed request is an error, a stream without its end, or an answer "
        f"that took {DEADLINE_SECONDS:g} s, the gateway's deadline in all runs.",
        "CPU: processor time of the run for each request, with clients and backend; the differences are the "
        "technique's. HTTP servers and connections are not in it, so ratios are larger than those of whole processes.",
        *_of_workloads(requests),
        "Each family is run where it can change something: "
        + "; ".join(f"{family} on {', '.join(on)}" for family, on in WHERE.items())
        + ".",
        "Token rate: what the backend of the workload can do, 10 s of it at once.",
        "As shipped: the defaults of the settings, with a tier on disk left out everywhere. Renewal before the end and "
        "jitter of lifetimes have no setting and are always on.",
        f"Smaller model: {SMALLER_WORK:g} of the time and of the GPU seconds, never in trouble; its answers count as "
        f"right. Feedback, where it is taken: of {100.0 * REPORTED_SHARE:g} % of the bad answers, at once. "
        f"Log-probabilities ({LOGPROB_TOKENS} tokens, mean -1) and temperature {TEMPERATURE:g} say nothing of when an "
        "answer changes.",
    ]


def _of_workloads(requests: Mapping[str, int]) -> list[str]:
    span, crowded = requests["changing"] / CHANGING_PER_SECOND, requests["crowded"] / CROWDED_PER_SECOND
    rates = ", ".join(
        f"{name} {'never' if times is None else f'every {span / times:,.0f} s'}"
        for name, times in CHANGES_IN_SPAN.items()
    )
    slow, well, down, back, flush = (f"{100.0 * one:g} %" for one in (*SLOW, *DOWN, FLUSH))
    return [
        f"Wordings: the {len(pairs())} pairs of fow-cache, half of them traps, by Zipf's law in either wording, "
        f"{PER_SECOND:g} a second, {PROMPT_TOKENS} prompt tokens; {100.0 * PICTURED_SHARE:g} % of the pairs with a "
        f"picture. {100.0 * CHANGED_SHARE:g} % of the requests are written differently in one way: order of keys, "
        "characters, ends of lines, a line with the time, a line with an id, a field with an id, addresses. Nothing "
        "changes.",
        f"Changing: keys drawn from the shipped trace {SHIPPED} with all their requests, 14 days squeezed into "
        f"{span:,.0f} s; keys of more than {100.0 * HOTTEST:g} % of the requests are left out. Namespaces by lot, "
        f"whose answers change at random: {rates}. Lifetime {span / LIFETIMES_IN_SPAN:,.0f} s. "
        f"{100.0 * SAMPLED_SHARE:g} % of the keys are sampled, and kept; {100.0 * LOGPROBS_SHARE:g} % ask for "
        "logprobs.",
        f"Crowded: such a sample over {crowded:,.0f} s, tokens as in the trace; "
        "the semantic tier, where it is on, has as much room again. Questions differ by a number in otherwise equal "
        "texts.",
        f"Troubled: {TROUBLED_KEYS} keys by Zipf's law, {TROUBLED_PER_SECOND:g} requests a second, "
        f"lifetime {TROUBLED_TTL_SECONDS:g} s, answers change every {CHANGE_SECONDS:g} s at random. "
        f"{SLOW_FACTOR:g} times as slow from {slow} of the run to {well}, down from {down} to {back}; at {flush} all "
        f"answers change and the namespace is flushed. {100.0 * WRONG_SHARE:g} % of the requests are refused by the "
        f"backend, {100.0 * STREAMED_SHARE:g} % of the others are streams, of which {100.0 * DROPPED_SHARE:g} % lose "
        f"their connection and come back after {AWAY_SECONDS:g} s.",
    ]
