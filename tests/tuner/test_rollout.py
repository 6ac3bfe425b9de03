"""The table of a rollout, every cell of it, and what no order of events may bring about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from caches.errors import InputError
from tuner.records import Mode, Outcome, Phase, Verdict, WishKind
from tuner.rollout import (
    RUNNING,
    TABLE,
    Arrival,
    Cause,
    Move,
    Place,
    Turn,
    ahead,
    least_intervals,
    mode_of,
    next_phase,
    share_of,
)
from tuner.rollout_section import RolloutConfig

CAUSES: tuple[Cause, ...] = (*Outcome, *Verdict, *WishKind, *Arrival)
CONFIG = RolloutConfig(
    shares=(0.05, 0.2, 0.5, 1.0),
    step_intervals=(4, 3, 2, 1),
    settle_intervals=1,
    shadow_intervals=2,
    cool_down_intervals=5,
)
SHADOW, CANARY, PROMOTED = Place(Phase.SHADOW), Place(Phase.CANARY), Place(Phase.PROMOTED)
RAMP = tuple(Place(Phase.RAMP, step) for step in (1, 2, 3))
PLACES = (Place(), SHADOW, CANARY, *RAMP, PROMOTED, Place(Phase.ROLLED_BACK))
BETTER, PENDING, WORSE = Outcome.BETTER, Outcome.PENDING, Outcome.WORSE

# One letter a phase, IDLE SHADOW CANARY RAMP PROMOTED ROLLED_BACK: s stay, w wait, a advance, p promote, e end,
# r roll back, b begin, l release.
EXPECTED = {
    "pending": "saaass",
    "better": "saaass",
    "worse": "srrrss",
    "inconclusive": "seeess",
    "error": "swwwss",
    "allow": "ssssss",
    "hold": "wwwwww",
    "rollback": "rrrrrs",
    "start": "bsssbs",
    "pause": "wwwwww",
    "resume": "ssssss",
    "promote": "spppss",
    "roll_back": "rrrrrs",
    "release": "sssssl",
    "stop": "seeess",
    "kill": "srrrss",
    "challenger": "bsssbb",
}
LETTERS = {
    "s": Move.STAY,
    "w": Move.WAIT,
    "a": Move.ADVANCE,
    "p": Move.PROMOTE,
    "e": Move.END,
    "r": Move.ROLL_BACK,
    "b": Move.BEGIN,
    "l": Move.RELEASE,
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cell(cause: Cause) -> None:
    order = (Phase.IDLE, Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.PROMOTED, Phase.ROLLED_BACK)
    assert [TABLE[phase, cause] for phase in order] == [LETTERS[letter] for letter in EXPECTED[cause.value]]


def test_the_table_is_total_and_its_causes_have_names_of_their_own() -> None:
    assert set(TABLE) == set(product(Phase, CAUSES))
    assert len({cause.value for cause in CAUSES}) == len(CAUSES) == len(EXPECTED)


def turn(place: Place, outcome: Outcome = PENDING, causes: Sequence[Cause] = (), intervals: int = 1_000) -> Turn:
    return next_phase(place, outcome, causes, intervals, CONFIG)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_place_and_cause_leads_somewhere_with_a_sentence(place: Place, cause: Cause) -> None:
    for outcome, intervals in product(Outcome, (0, 1_000)):
        found = turn(place, outcome, [cause], intervals)
        assert found.place in PLACES
        assert found.reason.endswith(".")
        assert (found.place != place) == (found.move not in {Move.STAY, Move.WAIT}) or found.move is Move.BEGIN


def test_the_way_up_step_by_step() -> None:
    """Each step its own least intervals, with one to settle before they count, and BETTER where no control is left."""
    way = [
        (SHADOW, 2, PENDING, CANARY),
        (CANARY, 5, PENDING, RAMP[0]),
        (RAMP[0], 4, PENDING, RAMP[1]),
        (RAMP[1], 3, BETTER, RAMP[2]),
        (RAMP[2], 2, BETTER, PROMOTED),
    ]
    for place, least, outcome, there in way:
        assert least_intervals(place, CONFIG) == least
        assert ahead(place, CONFIG) == there
        assert turn(place, outcome, intervals=least - 1).place == place
        assert turn(place, outcome, intervals=least).place == there
    assert (
        turn(SHADOW, intervals=2).reason == "After 2 intervals with the outcome pending it goes on to 5 % of the keys."
    )
    assert turn(CANARY, intervals=3).reason == "3 of the 5 intervals of this step are over."


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not BETTER])
def test_nothing_but_better_gives_all_keys_or_promotes(outcome: Outcome) -> None:
    assert turn(RAMP[1], outcome).place not in (RAMP[2], PROMOTED)
    assert turn(RAMP[2], outcome).place is not PROMOTED
    assert turn(RAMP[1]).reason == "All traffic takes the outcome better; so far it is pending."


@pytest.mark.parametrize("place", [SHADOW, CANARY, *RAMP])
def test_a_hold_or_a_pause_stops_the_way_up_and_not_the_way_down(place: Place) -> None:
    for still in (Verdict.HOLD, WishKind.PAUSE):
        assert turn(place, BETTER, [still]).place == place
        assert turn(place, WORSE, [still]).place.phase is Phase.ROLLED_BACK
        assert turn(place, BETTER, [still, WishKind.PROMOTE]).place == PROMOTED


def test_the_most_cautious_of_several_causes_counts() -> None:
    assert turn(CANARY, BETTER, [WishKind.PROMOTE, Verdict.ROLLBACK]).cause is Verdict.ROLLBACK
    assert turn(CANARY, WORSE, [WishKind.PROMOTE]).cause is WORSE
    assert turn(CANARY, BETTER, [WishKind.PROMOTE, WishKind.STOP]).place == Place(Phase.IDLE)
    assert turn(CANARY, BETTER, [WishKind.STOP, WishKind.ROLL_BACK]).place.phase is Phase.ROLLED_BACK
    assert turn(CANARY, PENDING, [Verdict.ROLLBACK]).reason == (
        "Rolled back (rollback); it stays so until it is released or a new version comes."
    )


def test_a_rollback_latches() -> None:
    back = Place(Phase.ROLLED_BACK)
    leaves = {cause for cause in CAUSES if turn(back, BETTER, [cause]).place != back}
    assert leaves == {WishKind.RELEASE, Arrival.CHALLENGER}
    assert turn(back, BETTER, [WishKind.RELEASE], intervals=0).place == Place(Phase.IDLE)
    early = turn(back, BETTER, [Arrival.CHALLENGER], intervals=3)
    assert (early.place, early.reason) == (
        back,
        "A new version waits until 2 more intervals have passed since the rollback.",
    )
    assert turn(back, BETTER, [Arrival.CHALLENGER], intervals=5).place == SHADOW


def test_a_newer_version_waits_for_the_experiment_that_runs() -> None:
    for place in (SHADOW, CANARY, *RAMP):
        assert turn(place, PENDING, [Arrival.CHALLENGER, Verdict.HOLD]).place == place
    assert turn(Place(), PENDING, [Arrival.CHALLENGER], intervals=0).place == SHADOW
    assert turn(PROMOTED, PENDING, [Arrival.CHALLENGER], intervals=0).place == SHADOW


def test_no_dead_end_but_rolled_back_and_promoted() -> None:
    """From any other place outcomes alone, and a challenger where there is none, lead to PROMOTED."""
    for start in PLACES:
        place, seen = start, set()
        while place not in seen:
            seen.add(place)
            place = turn(place, BETTER, [Arrival.CHALLENGER] if place == Place() else []).place
        assert place.phase is (Phase.ROLLED_BACK if start.phase is Phase.ROLLED_BACK else Phase.PROMOTED)


def test_shares_and_modes_of_places() -> None:
    assert [share_of(place, CONFIG) for place in PLACES] == [0.0, 0.0, 0.05, 0.2, 0.5, 1.0, 0.0, 0.0]
    assert [mode_of(phase) for phase in Phase] == [
        *(Mode.HOLD, Mode.SHADOW, Mode.CANARY, Mode.CANARY, Mode.LIVE, Mode.HOLD),
    ]


def test_a_step_that_the_settings_no_longer_have_is_refused() -> None:
    short = RolloutConfig(shares=(0.1, 1.0), step_intervals=(1, 1))
    with pytest.raises(InputError, match=r"rollout\.shares: got 2 steps, expected more than 2"):
        share_of(RAMP[1], short)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shares": (1.0,), "step_intervals": (1,)}, "at least two steps"),
        ({"shares": (0.0, 1.0), "step_intervals": (1, 1)}, "above 0"),
        ({"shares": (0.5, 0.9), "step_intervals": (1, 1)}, "up to 1"),
        ({"shares": (0.5, 0.2, 1.0), "step_intervals": (1, 1, 1)}, "grow"),
        ({"shares": (0.5, 1.0)}, "for each of the 2 shares"),
        ({"shares": (0.5, 1.0), "step_intervals": (1, 0)}, "at least 1"),
    ],
)
def test_shares_that_are_no_ramp_are_refused(change: dict[str, tuple[float, ...]], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        RolloutConfig(**change)


@given(st.lists(st.tuples(st.sampled_from([PENDING, Outcome.ERROR]), st.sampled_from(Verdict)), max_size=80))
def test_pending_for_ever_never_promotes(events: list[tuple[Outcome, Verdict]]) -> None:
    place = SHADOW
    for outcome, verdict in events:
        place = turn(place, outcome, [verdict]).place
        assert place != PROMOTED
        assert share_of(place, CONFIG) < 1.0


class Rollout(RuleBasedStateMachine):
    """An operator, an analysis and guardrails that do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.intervals, self.share = Place(), 0, 0.0
        self.proven = self.asked = self.latched = False

    @rule(
        outcome=st.sampled_from(Outcome),
        causes=st.lists(st.sampled_from([*Verdict, *WishKind, *Arrival]), max_size=3),
        passed=st.integers(0, 3),
    )
    def tick(self, outcome: Outcome, causes: list[Cause], passed: int) -> None:
        before, self.intervals = self.place, self.intervals + passed
        found = turn(before, outcome, causes, self.intervals)
        self._judge(before, found.place, outcome, causes)
        if found.place != before:
            self.intervals = 0
        self.place, self.share = found.place, share_of(found.place, CONFIG)

    def _judge(self, before: Place, after: Place, outcome: Outcome, causes: list[Cause]) -> None:
        bad = outcome is WORSE or {Verdict.ROLLBACK, WishKind.ROLL_BACK, WishKind.KILL} & set(causes)
        if before.phase in RUNNING and bad:
            assert after == Place(Phase.ROLLED_BACK)
            self.latched = True
        if WishKind.RELEASE in causes or Arrival.CHALLENGER in causes:
            self.latched = False
        if self.latched:
            assert share_of(after, CONFIG) == 0.0
            assert after.phase is Phase.ROLLED_BACK
        rising = share_of(after, CONFIG) > share_of(before, CONFIG)
        if rising:
            assert after == ahead(before, CONFIG)
            assert self.intervals >= least_intervals(before, CONFIG)
            assert outcome in (PENDING, BETTER)
            assert not {Verdict.HOLD, WishKind.PAUSE} & set(causes)
        if after == PROMOTED and before != PROMOTED:
            assert WishKind.PROMOTE in causes or (before == RAMP[2] and outcome is BETTER)

    @invariant()
    def no_more_than_the_step(self) -> None:
        assert self.share == {Phase.CANARY: 0.05, Phase.RAMP: CONFIG.shares[self.place.step]}.get(self.place.phase, 0.0)
        assert self.place in PLACES

    @precondition(lambda self: self.place.phase is Phase.ROLLED_BACK)
    @rule(outcome=st.sampled_from(Outcome), passed=st.integers(0, 100))
    def nothing_by_itself_ends_a_rollback(self, outcome: Outcome, passed: int) -> None:
        self.intervals += passed
        assert turn(self.place, outcome, (), self.intervals).place == self.place


TestRollout = Rollout.TestCase
TestRollout.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
