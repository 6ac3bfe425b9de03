"""A key by which a wish that is asked for again is done once."""

from __future__ import annotations

from dataclasses import dataclass

from caches.errors import InputError


class KeyUsed(InputError):
    """The key stands for another wish."""


@dataclass(frozen=True)
class WishKey:
    """by: whose key it is; keys of others are others. fingerprint: of all that is asked for."""

    by: str
    key: str
    fingerprint: str
