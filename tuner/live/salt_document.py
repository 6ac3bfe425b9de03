"""What a live cache is asked for when a salt is wanted, and what it answers, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import orjson
from pydantic import Field, model_validator

from caches.target import BalancedSalt
from tuner.live.arms_document import LONGEST_SALT, PATH, Strict

SALT_PATH = f"{PATH}/salt"
MOST_SHARES = 20

Share = Annotated[float, Field(gt=0, lt=1)]


class SaltWish(Strict):
    """seed: of the salts that are tried. shares: of the treatment arm, for which one salt is balanced at once."""

    seed: int = Field(ge=0, lt=2**63)
    shares: tuple[Share, ...] = Field(min_length=1, max_length=MOST_SHARES)


class SaltDocument(Strict):
    """salt, imbalance: null where nothing is known of past traffic. keys: that were looked at."""

    salt: str | None = Field(max_length=LONGEST_SALT)
    imbalance: float | None = Field(ge=0)
    keys: int = Field(ge=0)

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.salt is None) != (self.imbalance is None):
            raise ValueError("got one of salt and imbalance, expected both or neither")
        return self

    def value(self) -> BalancedSalt | None:
        if self.salt is None or self.imbalance is None:
            return None
        return BalancedSalt(self.salt, self.imbalance, self.keys)


def salt_wish_json(seed: int, shares: Sequence[float]) -> bytes:
    return orjson.dumps({"seed": seed, "shares": list(shares)})


def salt_json(found: BalancedSalt | None) -> bytes:
    return orjson.dumps({"salt": None, "imbalance": None, "keys": 0} if found is None else found)
