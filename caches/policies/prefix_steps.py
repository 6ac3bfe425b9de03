"""What happens to a prefix cache under any policy: caches.shadow.chain where nothing is known of its blocks, which is
least recently used, and caches.policies.prefix_kernel elsewhere.

Numba compiles the two apart, by the type of `learned`, and puts them where they are called: to choose takes no time.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from caches.policies import prefix_kernel
from caches.policies.prefix_notes import Notes
from caches.policies.prefix_settings import PrefixRules
from caches.shadow import chain
from caches.shadow.chain import ChainState, Room
from caches.shadow.trie import Chains

Learned = tuple[Notes, PrefixRules]


@njit(cache=True)
def resize(chains: Chains, state: ChainState, learned: Learned | None, room: Room, now: float) -> None:
    """As caches.shadow.chain.resize."""
    if learned is None:
        chain.resize(state, room)
    else:
        prefix_kernel.resize(chains, state, learned[0], learned[1], room, now)


@njit(cache=True)
def expire(
    chains: Chains, state: ChainState, learned: Learned | None, room: Room, ttl_seconds: float, now: float
) -> None:
    """As caches.shadow.chain.expire."""
    if learned is None:
        chain.expire(state, room, ttl_seconds, now)
    else:
        prefix_kernel.expire(chains, state, learned[0], room, ttl_seconds, now)


@njit(cache=True)
def admit(chains: Chains, state: ChainState, learned: Learned | None, room: Room, t: int, now: float) -> Any:
    """As caches.shadow.chain.admit."""
    if learned is None:
        return chain.admit(chains, state, room, t)
    return prefix_kernel.admit(chains, (state, learned[0], learned[1]), room, t, now)


@njit(cache=True)
def release(
    chains: Chains, state: ChainState, learned: Learned | None, room: Room, span: tuple[int, int], now: float
) -> None:
    """As caches.shadow.chain.release. span: the request, and how many of its blocks it holds."""
    if learned is None:
        chain.release(chains, state, room, span[0], span[1], now)
    else:
        prefix_kernel.release(chains, (state, learned[0], learned[1]), room, span[0], span[1], now)


@njit(cache=True)
def warm(chains: Chains, state: ChainState, learned: Learned | None, room: Room, t: int, now: float) -> None:
    """As caches.shadow.chain.warm."""
    if learned is None:
        chain.warm(chains, state, room, t, now)
    else:
        prefix_kernel.warm(chains, (state, learned[0], learned[1]), room, t, now)
