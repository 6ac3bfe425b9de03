"""Token rate: how many tokens a second may be asked of a backend, and that long requests are held back first.

    level      tokens in the bucket: rises by `tokens_per_second`, up to `burst_tokens`
    admitted   where tokens <= LARGEST_SHARE * level, or where the bucket is full

A request may take half of what is left. So as a bucket empties, long requests are refused while short ones still pass,
and one that is longer than half of a full bucket waits for a full one and leaves it in debt. In any stretch of time
the tokens that are admitted stay below burst + rate * time + the longest request. The threshold in requests a second
follows: rate / tokens of a request.

What a request will take is estimated when it comes, and settled when its answer is there.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from caches.bucket import Bucket
from caches.errors import InputError

LARGEST_SHARE = 0.5
MOST_TENANTS = 10_000


@dataclass(frozen=True)
class TokenRule:
    """tokens_per_second: of prompts and answers together. burst_tokens: that may be asked for at once."""

    tokens_per_second: float
    burst_tokens: float

    def __post_init__(self) -> None:
        for name in ("tokens_per_second", "burst_tokens"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise InputError(f"{name}: got {value}, expected a finite number above 0")


class TokenBucket(Bucket):
    """The bucket of a rule."""

    def __init__(self, rule: TokenRule, now_seconds: float) -> None:
        super().__init__(rule.tokens_per_second, rule.burst_tokens, now_seconds)
        self._rule = rule

    def until_admitted_seconds(self, tokens: float, now_seconds: float) -> float:
        """For a request of so many tokens, if no other came; 0 where it would be now."""
        return self.left_seconds(min(tokens / LARGEST_SHARE, self._rule.burst_tokens), now_seconds)


class TokenRate:
    """The whole backend's bucket and one for each tenant, either of which may be left out; a request has to pass both,
    and takes from neither where one refuses it. The tenants that were seen last are known, so many at most; one that
    was forgotten begins with a full bucket."""

    def __init__(
        self, whole: TokenRule | None, tenant: TokenRule | None, now_seconds: float, most_tenants: int = MOST_TENANTS
    ) -> None:
        self._tenant_rule, self._most = tenant, most_tenants
        self._whole = None if whole is None else TokenBucket(whole, now_seconds)
        self._tenants: OrderedDict[str, TokenBucket] = OrderedDict()

    def asked(self, tenant: str, tokens: float, now_seconds: float) -> float:
        """Takes the tokens and returns 0; or takes none and returns the seconds until it would."""
        buckets = self._buckets(tenant, now_seconds)
        left = max((bucket.until_admitted_seconds(tokens, now_seconds) for bucket in buckets), default=0.0)
        if left == 0.0:
            for bucket in buckets:
                bucket.take(tokens, now_seconds)
        return left

    def settle(self, tenant: str, estimated: float, taken: float, now_seconds: float) -> None:
        """The answer took other than was thought."""
        for bucket in self._buckets(tenant, now_seconds):
            bucket.take(taken - estimated, now_seconds)

    def level(self, now_seconds: float) -> float | None:
        """Of the whole; None where there is no such bucket."""
        return None if self._whole is None else self._whole.level(now_seconds)

    def _buckets(self, tenant: str, now_seconds: float) -> list[TokenBucket]:
        whole = [] if self._whole is None else [self._whole]
        if self._tenant_rule is None:
            return whole
        bucket = self._tenants.get(tenant)
        if bucket is None:
            bucket = self._tenants[tenant] = TokenBucket(self._tenant_rule, now_seconds)
            if len(self._tenants) > self._most:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        return [*whole, bucket]
