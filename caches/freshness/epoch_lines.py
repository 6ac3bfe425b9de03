"""The beginning of an epoch as a line of JSON, the same in every store."""

from __future__ import annotations

import math

import orjson

from caches.errors import InputError
from caches.freshness.epochs import EpochsUnavailable
from caches.keys.partitions import partition_of
from caches.tiers.selection import Selection

SHOWN = 60  # characters of a wrong line


def name_of(selection: Selection) -> bytes:
    """Different for different selections."""
    partition = selection.partition
    return orjson.dumps([partition.tenant, partition.namespace, selection.model, selection.tag])


def selection_of(name: bytes) -> Selection:
    """Raises EpochsUnavailable for what is no name of one."""
    try:
        tenant, namespace, model, tag = orjson.loads(name)
        if not all(isinstance(one, str | None) for one in (model, tag)):
            raise TypeError("labels are no texts")
        return Selection(partition_of(tenant, namespace), model, tag)
    except (ValueError, TypeError, InputError) as error:
        raise EpochsUnavailable(f"epochs: got {name[:SHOWN]!r}, expected the name of a selection") from error


def seconds_of(value: object) -> float:
    """Raises EpochsUnavailable for what is no time."""
    try:
        seconds = float(value)  # type: ignore[arg-type]  # whatever lies there
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise EpochsUnavailable(f"epochs: got {str(value)[:SHOWN]!r}, expected Unix seconds")
    return seconds
