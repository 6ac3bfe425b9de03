"""The section of the gateway's settings about streams that are kept while they come."""

from __future__ import annotations

from pydantic import BaseModel

from api.gateway.config_knobs import SECTION, seconds, size
from caches.stream import StreamRules
from envs.units import described


class StreamingConfig(BaseModel):
    """Streams that are kept event by event as they come, so that a client that lost its connection gets the rest, and
    other gateways join in. Off unless it is enabled: see the page on streaming."""

    model_config = SECTION

    enabled: bool = described(False, "Whether streams are kept.", "")
    place: str = described(
        "memory",
        "Where: memory, for resuming at the same gateway; or the name of a tier in Redis, for resuming and joining at "
        "all that share it. Namespaces that do not use that tier keep no streams.",
        "name",
    )
    join: bool = described(True, "In Redis: whether equal requests at other gateways join a stream that runs.", "")
    grace_seconds: float = seconds(30.0, "A call goes on so long for a client that may come back.", ge=0)
    kept_seconds: float = seconds(60.0, "A stream can be read so long after its end.")
    largest_bytes: int = size(4 * 2**20, "Of the events of a stream; what is longer cannot be resumed beyond.")
    capacity_bytes: int = size(64 * 2**20, "In memory: of all streams; those that ended first go first.")
    lease_seconds: float = seconds(5.0, "A gateway that writes nothing for so long counts as dead.")

    @property
    def rules(self) -> StreamRules:
        return StreamRules(self.largest_bytes, self.kept_seconds, self.lease_seconds)
