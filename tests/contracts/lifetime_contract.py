"""One contract for every schedule of lifetimes, whatever is known of an entry and its surroundings."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.freshness.lifetime import Bounded, Bounds, Context, EntryFacts, Schedule, Verdict

QUICKLY = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
POSITIVE = st.floats(1e-3, 1e9)
MAYBE = st.none()
ENTRIES = st.builds(
    EntryFacts,
    written_seconds=st.floats(0.0, 2e9),
    base_ttl_seconds=st.one_of(POSITIVE, st.just(math.inf)),
    tokens=st.one_of(MAYBE, st.integers(0, 10**6)),
    mean_logprob=st.one_of(MAYBE, st.floats(-1e6, 0.0)),
    entropy_bits=st.one_of(MAYBE, st.floats(0.0, 20.0)),
    temperature=st.one_of(MAYBE, st.floats(0.0, 2.0)),
    top_p=st.one_of(MAYBE, st.floats(0.0, 1.0)),
    tags=st.just(frozenset({"a"})),
    feedback=st.lists(st.sampled_from(list(Verdict)), max_size=5).map(tuple),
)
CONTEXTS = st.builds(
    Context,
    now_seconds=st.floats(0.0, 2e9),
    qps=st.one_of(MAYBE, st.floats(0.0, 1e7)),
    error_rate=st.one_of(MAYBE, st.floats(0.0, 1.0)),
    change_rate=st.one_of(MAYBE, st.floats(0.0, 1e6), st.just(math.inf)),
    longest_age_seconds=st.one_of(MAYBE, POSITIVE),
)
BOUNDS = st.builds(
    Bounds,
    shortest_share=st.floats(1e-3, 1.0),
    longest_share=st.floats(1.0, 10.0),
    longest_seconds=st.one_of(POSITIVE, st.just(math.inf)),
)


class LifetimeContract:
    """Subclass it in a test module, with an attribute `schedule`."""

    schedule: Schedule

    @QUICKLY
    @given(entry=ENTRIES, context=CONTEXTS, bounds=BOUNDS, share=st.floats(1e-3, 1.0))
    def test_the_operators_bounds_hold(self, entry: EntryFacts, context: Context, bounds: Bounds, share: float) -> None:
        base = entry.base_ttl_seconds
        seconds = Bounded(self.schedule, bounds).lifetime(entry, context, share)
        assert 0.0 < seconds <= min(bounds.longest_share * base, bounds.longest_seconds)
        assert seconds >= min(bounds.shortest_share * base, bounds.longest_seconds)

    @QUICKLY
    @given(entry=ENTRIES, context=CONTEXTS)
    def test_it_is_a_finite_number_where_the_base_is(self, entry: EntryFacts, context: Context) -> None:
        finite = replace(entry, base_ttl_seconds=min(entry.base_ttl_seconds, 1e9))
        seconds = Bounded(self.schedule).lifetime(finite, context)
        assert math.isfinite(seconds)
        assert seconds > 0.0

    @QUICKLY
    @given(entry=ENTRIES, context=CONTEXTS)
    def test_equal_facts_have_equal_lifetimes(self, entry: EntryFacts, context: Context) -> None:
        assert self.schedule.lifetime(entry, context) == self.schedule.lifetime(replace(entry), replace(context))

    @QUICKLY
    @given(base=POSITIVE, now=st.floats(0.0, 2e9))
    def test_of_what_is_not_known_it_says_the_base(self, base: float, now: float) -> None:
        assert math.isclose(self.schedule.lifetime(EntryFacts(0.0, base), Context(now)), base, rel_tol=1e-12)

    @QUICKLY
    @given(entry=ENTRIES, context=CONTEXTS, shorter=st.floats(0.01, 1.0))
    def test_a_shorter_base_never_makes_a_longer_lifetime(
        self, entry: EntryFacts, context: Context, shorter: float
    ) -> None:
        other = replace(entry, base_ttl_seconds=shorter * entry.base_ttl_seconds)
        bounded = Bounded(self.schedule)
        assert bounded.lifetime(other, context) <= bounded.lifetime(entry, context) * (1.0 + 1e-12)
