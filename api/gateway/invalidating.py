"""What an invalidation asks for: a namespace, what one model answered or one tag marks in it, or one request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from api.gateway.access import checked_partition
from api.http.errors import BadRequest
from caches.invalidation import What
from caches.keys.partitions import EXPECTED, NAME
from caches.keys.request_key import FINGERPRINT_BYTES, Partition, RequestKey
from caches.tiers.selection import Selection

FIELDS = frozenset({"namespace", "tenant", "model", "tag", "key", "dry_run", "flush"})


@dataclass(frozen=True)
class Invalidation:
    """key: the fingerprint of a request, as `x-setpoint-key` of its answer says it. dry_run: only count. flush: begin a
    new epoch, and remove nothing."""

    partition: Partition
    model: str | None
    tag: str | None
    key: bytes | None
    dry_run: bool
    flush: bool = False

    @property
    def what(self) -> What:
        if self.key is None:
            return Selection(self.partition, self.model, self.tag)
        return RequestKey(self.partition, self.key, self.key)  # what it names is found by its fingerprint alone

    def told(self) -> dict[str, Any]:
        """What was asked for, without what was not."""
        asked = {"model": self.model, "tag": self.tag, "key": None if self.key is None else self.key.hex()}
        stated = {name: value for name, value in asked.items() if value is not None}
        return asdict(self.partition) | stated | {"dry_run": self.dry_run} | ({"flush": True} if self.flush else {})


def invalidation_of(body: dict[str, Any], tenant: str) -> Invalidation:
    """tenant: where the body names none. Raises BadRequest, naming the field; also for a field that is null, since an
    empty variable in somebody's script must not clear the whole namespace."""
    for name, value in body.items():
        if value is None:
            raise BadRequest(f"{name}: got null, expected a value, or no such field", name)
    partition = checked_partition(body.get("tenant", tenant), body.get("namespace"))
    model, tag, key, dry_run = (body.get(name) for name in ("model", "tag", "key", "dry_run"))
    if model is not None and (not isinstance(model, str) or not model):
        raise BadRequest("model: expected the name of a model", "model")
    if tag is not None and (not isinstance(tag, str) or not NAME.fullmatch(tag)):
        raise BadRequest(f"tag: expected {EXPECTED}", "tag")
    for name in ("dry_run", "flush"):
        if not isinstance(body.get(name, False), bool):
            raise BadRequest(f"{name}: expected true or false", name)
    flush = bool(body.get("flush"))
    if key is not None and flush:
        raise BadRequest("flush: expected without key", "flush")
    if key is not None and (model is not None or tag is not None):
        raise BadRequest("key: expected without model and tag", "key")
    return Invalidation(partition, model, tag, None if key is None else fingerprint_of(key), bool(dry_run), flush)


def fingerprint_of(key: object) -> bytes:
    """Raises BadRequest for what is none."""
    try:
        fingerprint = bytes.fromhex(key) if isinstance(key, str) else b""
    except ValueError:
        fingerprint = b""
    if len(fingerprint) != FINGERPRINT_BYTES:
        raise BadRequest(f"key: expected {2 * FINGERPRINT_BYTES} digits, as in x-setpoint-key of an answer", "key")
    return fingerprint
