"""The section of the gateway's settings about its access log, and the log of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, model_validator

from api.gateway.config_knobs import SECTION, seconds
from caches.errors import InputError
from caches.tiers.redis_connection import connect
from envs.units import described
from traces.access.log import AccessLog
from traces.access.parquet_log import ParquetAccessLog
from traces.access.stream_log import RedisStreamAccessLog, stream_place

REDIS_SECONDS = 5.0  # for an answer; it delays nobody but the log


class AccessLogConfig(BaseModel):
    """A record of every request: hashes, sizes, tokens, times; never text. Nothing is logged where no place is set."""

    model_config = SECTION

    place: str | None = described(
        None, "A folder, or a Redis stream as in redis://host:6379/0?stream=NAME.", "path", repr=False
    )
    place_env: str | None = described(None, "Environment variable that holds the place instead.", "name")
    secret_env: str | None = described(
        None,
        "Environment variable with the secret of the hashes, 16 characters or more; not set: one that is drawn at "
        "random, and kept beside the log.",
        "name",
    )
    rotate_seconds: float = seconds(3_600.0, "Of a folder: a file is finished after so long.")
    rotate_rows: int = described(1_000_000, "Of a folder: or when it has so many rows.", "rows", gt=0, strict=True)
    keep_days: float | None = described(
        None, "Of a folder: older files are removed; not set: none.", "days", gt=0, strict=True, allow_inf_nan=False
    )
    key_levels: bool = described(
        False,
        "Of a folder: whether keys are recorded at each level of normalisation too, as hashes; `setpoint trace info` "
        "then says what keeps equal requests apart.",
        "",
    )
    key_language: str = described("en", "Of the questions, for the level of wording.", "name")
    max_length: int = described(10_000_000, "Of a stream: entries that it keeps, about.", "entries", gt=0, strict=True)

    @model_validator(mode="after")
    def _one_place(self) -> AccessLogConfig:
        if self.place is not None and self.place_env is not None:
            raise ValueError("place or place_env, not both")
        return self


def access_log_of(section: AccessLogConfig, secret_of: Callable[[str | None, str], str | None]) -> AccessLog | None:
    """Not started yet. secret_of: what the environment variable holds that a key of the section names; None for None.

    Raises InputError, and SetpointError for a folder that cannot be written.
    """
    place = section.place or secret_of(section.place_env, "place_env")
    if place is None:
        return None
    stated = secret_of(section.secret_env, "secret_env")
    secret = None if stated is None else stated.encode()
    if "://" not in place:
        return AccessLog(
            ParquetAccessLog(Path(place), section.rotate_seconds, section.rotate_rows, section.keep_days, secret)
        )
    if section.key_levels:
        raise InputError("access_log.key_levels: got a Redis stream, whose entries have one key; expected a folder")
    stream = stream_place(place)
    connection = connect(stream.url, REDIS_SECONDS)
    return AccessLog(RedisStreamAccessLog(connection, stream.stream, section.max_length, secret))
