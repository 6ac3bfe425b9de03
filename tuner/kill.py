"""The kill switch without a daemon: the operator's static settings for all keys, by whoever asks for them.

It needs the cache, and the ledger where that can be had; neither the registry nor any measurement.
"""

from __future__ import annotations

from dataclasses import replace

from caches.target import LiveCache, Plan, Split, Standing
from tuner.ledger import LeaseLost, Ledger, LedgerUnavailable

LEASE_SECONDS = 30.0


def restore_static(cache: LiveCache, ledger: Ledger, holder: str, now_seconds: float) -> Standing:
    """Takes the lease over by force, so that no daemon undoes it meanwhile, and gives it back. What a wish for it asks
    besides, a daemon does when it comes back.

    Raises CacheUnavailable, and LedgerUnavailable where the cache was told but that could not be written down.
    """
    static = cache.knob_space().default()
    plan = Plan(Split(), static, static)
    try:
        lease = ledger.take_lease(cache.name, holder, now_seconds, LEASE_SECONDS, force=True)
    except LedgerUnavailable:
        cache.apply(plan, cache.standing().fence + 1)
        raise
    if lease is None:
        raise LeaseLost(f"{cache.name}: the lease could not be taken by force")
    try:
        standing = cache.apply(plan, lease.fence)
        state = ledger.state(cache.name)
        if state is not None:
            ledger.amend(lease, replace(state, plan=plan, confirmed=False, opened=None), now_seconds)
            ledger.confirm(lease, state.index, standing, cache.counters(), now_seconds)
    finally:
        ledger.drop_lease(lease)
    return standing
