"""Which arm a key belongs to: a hash of the key with the experiment's salt, compared with the treatment's share.

The hash is a point on [0, 1), and the treatment arm owns what lies below its share. So an arm stays with a key as long
as salt and share do, in every process, and a share that grows from 5 to 20 % moves the 15 % between them, no other key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from caches.target import Arm, Split

_POINTS = 2.0**-64


def point(key: bytes, salt: str) -> float:
    """Where a key lies on [0, 1): the first 8 bytes of SHA-256 over the salt, a zero byte and the key."""
    return int.from_bytes(hashlib.sha256(salt.encode() + b"\0" + key).digest()[:8], "big") * _POINTS


def assign(key: bytes, split: Split) -> Arm:
    return Arm.TREATMENT if point(key, split.salt) < split.treatment else Arm.CONTROL


def assigner(split: Split) -> Callable[[bytes], Arm]:
    """`assign` for one split: what does not depend on the key is done once. A request pays for this."""
    if split.treatment <= 0.0:
        return lambda _key: Arm.CONTROL
    if split.treatment >= 1.0:
        return lambda _key: Arm.TREATMENT
    salted, bar = hashlib.sha256(split.salt.encode() + b"\0"), split.treatment

    def arm_of(key: bytes) -> Arm:
        hashed = salted.copy()
        hashed.update(key)
        return Arm.TREATMENT if int.from_bytes(hashed.digest()[:8], "big") * _POINTS < bar else Arm.CONTROL

    return arm_of


def points(keys: Iterable[bytes], salt: str) -> NDArray[np.float64]:
    """`point` of many keys, float64 of shape (keys,)."""
    return np.fromiter((point(key, salt) for key in keys), np.float64)
