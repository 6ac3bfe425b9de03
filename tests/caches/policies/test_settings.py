from __future__ import annotations

from collections.abc import Callable

import pytest

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS, admission_called, eviction_called
from caches.policies.rules import rules_from, rules_of
from caches.policies.settings import Lfu, LfuLru, LruK, S3Fifo, SecondHit, TinyLfu, WTinyLfu


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: LruK(0), "k: got 0, expected a whole number from 1 to 8"),
        (lambda: LruK(2, kept=-1.0), "kept: got -1.0, expected 0 to 100"),
        (lambda: Lfu(decay=0.0), "decay: got 0.0, expected above 0"),
        (lambda: Lfu(decay=1.1), "decay: got 1.1, expected 0 to 1"),
        (lambda: Lfu(decay_seconds=0.0), "decay_seconds: got 0.0, expected above 0"),
        (lambda: LfuLru(0.0, 0.0), r"frequency_weight \+ recency_weight: got 0.0, expected above 0"),
        (lambda: LfuLru(most_uses=65), "most_uses: got 65, expected a whole number from 1 to 64"),
        (lambda: S3Fifo(small=1.5), "small: got 1.5, expected 0 to 1"),
        (lambda: S3Fifo(uses=4), "uses: got 4, expected a whole number from 1 to 3"),
        (lambda: WTinyLfu(window=-0.1), "window: got -0.1, expected 0 to 1"),
        (lambda: TinyLfu(sample=0.5), "sample: got 0.5, expected 1 to 1000"),
        (lambda: SecondHit(requests=0), "requests: got 0, expected 1 or more"),
        (lambda: eviction_called("arc"), "eviction_policy: got 'arc', expected of lru, lru-2, lru-3, lfu"),
        (lambda: admission_called("none"), "admission: got 'none', expected of all, second-hit, tinylfu, cost-aware"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()


def test_rules_as_plain_numbers_and_back() -> None:
    """What a saved state says of its policies."""
    for eviction in (*EVICTIONS.values(), Lfu(0.9, 5.0), LfuLru(0.5, 0.5, 3), S3Fifo(0.2, 0.5, 1)):
        for admission in ADMISSIONS.values():
            rules = rules_of(eviction, admission)
            again = rules_from(float(number) for number in rules)
            assert again == rules
            assert [type(one) for one in again] == [type(one) for one in rules]
