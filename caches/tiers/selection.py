"""What an invalidation is about: a partition, or what one model answered or one tag marks in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from caches.keys.request_key import Partition

TAG_BYTES = 64  # of a tag beside its text: what Python takes for a string and its place in a set


class Labelled(Protocol):
    """A request, or an entry that knows what the request was which stored it."""

    @property
    def partition(self) -> Partition: ...

    @property
    def model(self) -> str: ...

    @property
    def tags(self) -> frozenset[str]: ...


@dataclass(frozen=True)
class Selection:
    """Entries of one partition: those of a model, those with a tag, those of which both hold, or all of them."""

    partition: Partition
    model: str | None = None
    tag: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the partition alone decides, so that nobody has to look at an entry's labels."""
        return self.model is None and self.tag is None

    def takes(self, key: Labelled) -> bool:
        """Whether an entry that this request stored is selected."""
        return (
            key.partition == self.partition
            and (self.model is None or key.model == self.model)
            and (self.tag is None or self.tag in key.tags)
        )


def label_bytes(key: Labelled) -> int:
    """What model and tags of an entry count for, beside its body."""
    return len(key.model.encode()) + sum(len(tag.encode()) + TAG_BYTES for tag in key.tags)
