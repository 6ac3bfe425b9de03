"""What a live cache says of the eviction policies that it can be brought under, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import orjson
from pydantic import Field, model_validator

from tuner.live.arms_document import LONGEST_POLICY, PATH, Strict

POLICIES_PATH = f"{PATH}/eviction-policies"

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_POLICY)]


class PoliciesDocument(Strict):
    """made_with: null, with nothing offered, where the cache does not tell."""

    made_with: Name | None
    offered: tuple[Name, ...]

    @model_validator(mode="after")
    def _made_with_is_offered(self) -> Self:
        if self.made_with is None and self.offered:
            raise ValueError("made_with: got null beside what is offered, expected a name")
        if self.made_with is not None and self.made_with not in self.offered:
            raise ValueError(f"made_with: got {self.made_with!r}, expected one of those offered")
        return self

    def value(self) -> tuple[str, ...]:
        """That which it was made with first, each once."""
        return () if self.made_with is None else tuple(dict.fromkeys((self.made_with, *self.offered)))


def policies_json(names: Sequence[str]) -> bytes:
    """names: as of `LiveCache.eviction_policies`."""
    return orjson.dumps({"made_with": names[0] if names else None, "offered": list(names)})
