"""Queues in two arrays of neighbours, as circles: each begins and ends at an entry of its own behind the keys'.

newer[circle] is the oldest member, older[circle] the newest; of an empty circle both are the circle.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from caches.policies.compiled import inlined

Array = NDArray[Any]


@inlined
def append(older: Array, newer: Array, key: Any, circle: Any) -> None:
    """Makes a key that is in no circle the newest member."""
    newest = older[circle]
    newer[newest] = key
    older[key] = newest
    newer[key] = circle
    older[circle] = key


@inlined
def unlink(older: Array, newer: Array, key: Any) -> None:
    """Takes a key out of its circle."""
    newer[older[key]] = newer[key]
    older[newer[key]] = older[key]
