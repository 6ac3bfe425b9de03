"""The key of a request: what a tier may tell it apart by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

FINGERPRINT_BYTES = 32


@dataclass(frozen=True, order=True)
class Partition:
    """Who may share answers. Nothing crosses a partition, in any tier: it is part of every name that a tier stores
    under. tenant: whose requests; namespace: which of their applications."""

    tenant: str = "default"
    namespace: str = "default"

    @cached_property
    def prefix(self) -> bytes:
        """How the ids of its requests begin; no other partition's do."""
        return b"%b\0%b\0" % (self.tenant.encode(), self.namespace.encode())


@dataclass(frozen=True)
class RequestKey:
    """fingerprint: 32 bytes over everything that changes the answer, the partition excluded. context: 32 bytes over all
    of that but the text of the last user message. question: that text, None where it is not plain text; then only equal
    requests can share an answer. model and tags: for invalidation; they tell nothing apart that the fingerprint does
    not."""

    partition: Partition
    fingerprint: bytes
    context: bytes
    question: str | None = None
    model: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def id(self) -> bytes:
        """The name to store under, of any length: partition and fingerprint."""
        return self.partition.prefix + self.fingerprint

    def __post_init__(self) -> None:
        for name in ("fingerprint", "context"):
            if len(getattr(self, name)) != FINGERPRINT_BYTES:
                raise ValueError(f"{name}: got {len(getattr(self, name))} bytes, expected {FINGERPRINT_BYTES}")
