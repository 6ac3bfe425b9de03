"""API keys in settings files: as their hashes, each once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from tuner.config_loader import HIDDEN

HASH = re.compile(r"[0-9a-f]{64}")


def _hash(value: object) -> object:
    """Not repeated where it is wrong: it may be the key itself."""
    if not isinstance(value, str) or not HASH.fullmatch(value):
        raise PydanticCustomError(HIDDEN, "the SHA-256 of a key, 64 digits, as setpoint hash-key prints it")
    return value


KeyHash = Annotated[str, BeforeValidator(_hash)]


class Hashed(Protocol):
    @property
    def sha256(self) -> str: ...


Keys = TypeVar("Keys", bound=Sequence[Hashed])


def each_once(keys: Keys) -> Keys:
    """Raises ValueError where a key is there twice: it could have two roles."""
    if len({key.sha256 for key in keys}) < len(keys):
        raise ValueError("each key once, with one role")
    return keys
