"""Tags from the `metadata` of a request's body: what an answer depends on that its client knows of."""

from __future__ import annotations

from collections.abc import Sequence

from api.http.errors import BadRequest
from caches.keys.partitions import EXPECTED, NAME

MOST = 16  # tags of one request


def metadata_tags(metadata: object, fields: Sequence[str]) -> frozenset[str]:
    """FIELD.VALUE of each of these fields; of a text with commas, one of each part. Raises BadRequest for a value that
    cannot be part of a tag, naming the field; other fields are nobody's business here."""
    if not isinstance(metadata, dict):
        return frozenset()
    tags = [
        _tag(name, part.strip())
        for name in fields
        if metadata.get(name) is not None
        for part in str(metadata[name]).split(",")
        if part.strip()
    ]
    if len({*tags}) > MOST:
        raise BadRequest(f"metadata: got {len({*tags})} tags, expected {MOST} at most", "metadata")
    return frozenset(tags)


def _tag(name: str, value: str) -> str:
    tag = f"{name}.{value}"
    if not NAME.fullmatch(tag):
        place = f"metadata.{name}"
        raise BadRequest(f"{place}: got {value[:40]!r}, expected with the field's name and a dot {EXPECTED}", place)
    return tag
