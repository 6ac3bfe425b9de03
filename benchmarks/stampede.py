"""A thousand clients for one key that nothing holds, in front of a backend that serves so many at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Cell, Table, say
from benchmarks.stack_parts import space
from benchmarks.stack_traffic import key_of
from caches.flight import Flight
from caches.place import Place
from caches.stack import Served, Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer
from envs.serving import ServingProfile, load_profile

CLIENTS = 1_000
PROFILE = "qwen-7b-a100"
PROMPT_TOKENS, OUTPUT_TOKENS = 1_020, 200
CELLS = ("p50, s", "p99, s", "calls of the backend")


class SlowBackend:
    """Takes what the profile says for one request, so many at a time, and counts."""

    def __init__(self, profile: ServingProfile, output_tokens: int) -> None:
        prefill = PROMPT_TOKENS / profile.prefill_tokens_per_second
        self.seconds = prefill + output_tokens * profile.seconds_per_output_token
        self.calls, self._slots = 0, asyncio.Semaphore(profile.max_sequences)

    async def __call__(self, flight: Flight[Served] | None = None) -> Answer:
        self.calls += 1
        async with self._slots:
            await asyncio.sleep(self.seconds)
        return Answer(b"answer", time.time(), compute_seconds=self.seconds)


@dataclass(frozen=True)
class Stampede:
    """waited_seconds: ascending, of each client."""

    waited_seconds: list[float]
    calls: int

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.waited_seconds, share))


async def stampede(backend: SlowBackend, clients: int, coalesced: bool) -> Stampede:
    """All at once. Not coalesced: each looks, calls where it finds nothing, and stores."""
    stack, key = Stack([Place(MemoryTier(space(1 << 30)))]), key_of("Who was first?")

    async def client() -> float:
        began = time.perf_counter()
        if coalesced:
            await stack.fetch(key, backend)
        elif await stack.lookup(key) is None:
            await stack.store(key, await backend())
        return time.perf_counter() - began

    waited = await asyncio.gather(*(client() for _ in range(clients)))
    await stack.close()
    return Stampede(sorted(waited), backend.calls)


def stampede_table(quick: bool) -> tuple[Table, Stampede]:
    """And what came out with coalescing."""
    profile, output_tokens = load_profile(PROFILE), 2 if quick else OUTPUT_TOKENS
    found, seconds = {}, 0.0
    for coalesced in (False, True):
        say(f"{CLIENTS:,} clients for one key, {'coalesced' if coalesced else 'each for itself'}")

        async def once(coalesced: bool = coalesced) -> tuple[Stampede, float]:
            backend = SlowBackend(profile, output_tokens)
            return await stampede(backend, CLIENTS, coalesced), backend.seconds

        found[coalesced], seconds = asyncio.run(once())
    rows: list[list[Cell]] = [
        [name, one.quantile(0.5), one.quantile(0.99), one.calls]
        for name, one in (("each for itself", found[False]), ("one call for all", found[True]))
    ]
    note = (
        f"The backend sleeps {seconds:.2f} s for each call, {profile.max_sequences} at a time: {profile.name}, "
        f"{PROMPT_TOKENS:,} prompt and {output_tokens} output tokens."
    )
    return Table(f"{CLIENTS:,} clients for one cold key", ("clients", *CELLS), rows, note), found[True]
