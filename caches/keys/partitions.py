"""Names of tenants and namespaces that every tier can store under."""

from __future__ import annotations

import re

from caches.errors import InputError
from caches.keys.request_key import Partition

# No colon, brace, slash or space: tiers join names with these. No other script: two names that look alike are alike.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
EXPECTED = "1 to 64 of the characters A-Z a-z 0-9 . _ -, the first a letter or a digit"


def partition_of(tenant: str = "default", namespace: str = "default") -> Partition:
    """The partition of these names; InputError where one is not a name."""
    return checked(Partition(tenant, namespace))


def checked(partition: Partition) -> Partition:
    """The partition itself; InputError where its tenant or namespace is not a name."""
    for field, value in (("tenant", partition.tenant), ("namespace", partition.namespace)):
        if not isinstance(value, str) or not NAME.fullmatch(value):
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
            raise InputError(f"{field}: got {shown}, expected {EXPECTED}")
    return partition
