"""Who gets the lease of a cache: the rule, as a pure function.

What keeps two daemons from writing is the fence, and no clock can undo that: the ledger holds one lease per cache, a
commit compares its fence in the transaction that writes, and each lease that goes to another holder, is taken by force
or is taken anew after it had run out has a higher one. Clocks only decide when somebody else may have it:

- While a lease is held its end only moves forward, also where the holder's clock was set back: what the holder was
  told before stays true.
- Somebody else gets it once their own clock is `skew_seconds` past its end. So two daemons whose clocks differ by no
  more than that never both believe that they hold it. Where clocks differ by more, the one that had it may believe so
  for a while, and the first thing that it does is refused.
- A clock that jumped ahead can put the end far away. The holder goes on; if it dies, nobody gets the lease before that
  end but by force.
"""

from __future__ import annotations

import math

from caches.errors import InputError
from tuner.ledger import Lease

GIVEN_BACK = 0.0  # the end of one that was: long over by every clock


def granted(
    current: Lease | None, asked: Lease, now_seconds: float, skew_seconds: float, *, force: bool
) -> Lease | None:
    """The lease that the holder of `asked` gets until its end, or a later one that it was told before; None where it is
    another's. current: the last one given. The fence of `asked` does not count."""
    if current is None:
        return Lease(asked.cache, asked.holder, 1, asked.until_seconds)
    is_own = current.holder == asked.holder
    if is_own and now_seconds < current.until_seconds and not force:
        return Lease(asked.cache, asked.holder, current.fence, max(current.until_seconds, asked.until_seconds))
    is_free = is_own or current.until_seconds == GIVEN_BACK
    if force or is_free or now_seconds >= current.until_seconds + skew_seconds:
        return Lease(asked.cache, asked.holder, current.fence + 1, asked.until_seconds)
    return None


def binds(current: Lease | None, lease: Lease, now_seconds: float) -> bool:
    """Whether `lease` is the current one, and has not run out."""
    is_current = current is not None and (current.holder, current.fence) == (lease.holder, lease.fence)
    return is_current and current is not None and now_seconds < current.until_seconds


def checked_times(now_seconds: float, seconds: float) -> None:
    """Raises InputError."""
    if not math.isfinite(now_seconds):
        raise InputError(f"now_seconds: got {now_seconds}, expected Unix time")
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise InputError(f"seconds: got {seconds}, expected how long the lease is to last")
