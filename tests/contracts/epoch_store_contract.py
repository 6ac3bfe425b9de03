"""One contract for every store of epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.freshness.epochs import EpochStore
from caches.keys.request_key import Partition
from caches.tiers.selection import Selection

A, B = Partition("a", "x"), Partition("a", "y")
SELECTIONS = [Selection(A), Selection(B), Selection(A, "m"), Selection(A, tag="m"), Selection(A, "m", 't"\\é')]
BEGUN = st.dictionaries(st.sampled_from(SELECTIONS), st.floats(1e9, 2e9), max_size=4)


class EpochStoreContract:
    """Subclass it with a fixture `made`: a new place, and from it as many stores as are asked for."""

    def test_an_empty_one_says_nothing(self, made: Callable[[], Callable[[], EpochStore]]) -> None:
        async def scenario() -> None:
            store = made()()
            assert await store.read() == {}
            await store.join({})
            await store.forget(1e12)
            assert await store.read() == {}
            await store.close()

        asyncio.run(scenario())

    @given(steps=st.lists(st.one_of(BEGUN, st.floats(1e9, 2e9)), max_size=6))
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    def test_two_over_one_place_know_the_latest_of_each(
        self, made: Callable[[], Callable[[], EpochStore]], steps: list[dict[Selection, float] | float]
    ) -> None:
        """A number: all before it is forgotten."""

        async def scenario() -> None:
            make = made()
            stores, known = [make(), make()], dict[Selection, float]()
            for place, step in enumerate(steps):
                store = stores[place % 2]
                if isinstance(step, dict):
                    await store.join(step)
                    known |= {one: max(at, known.get(one, at)) for one, at in step.items()}
                else:
                    await store.forget(step)
                    known = {one: at for one, at in known.items() if at >= step}
                assert [await one.read() for one in stores] == [known, known]
            for store in stores:
                await store.close()

        asyncio.run(scenario())
