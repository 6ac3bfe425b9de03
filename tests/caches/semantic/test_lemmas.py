"""Lemmas, twins and edits: what they propose, what they never serve, and what they leave behind."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition
from caches.knobs import KnobSettings
from caches.semantic.edits import share_of_edits
from caches.semantic.guard import veto
from caches.semantic.guard_reading import read
from caches.semantic.index import Group
from caches.semantic.lemmas import Lemmas
from caches.semantic.matching import MOST_SIMILAR, SemanticCounts
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.semantic.twins import Twins
from caches.tiers.selection import Selection
from tests.caches.semantic.toy import ENDLESS, HERE, START, ToyEmbedder, ask, say, space

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ENGLISH = Lemmas("en")
ASKED, TWIN = "how do i reset my password", "How are passwords reset?"


def form(question: str, lemmas: Lemmas = ENGLISH) -> str | None:
    return lemmas.form(read(question))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How do I reset my passwords?", "password reset"),
        ("resetting a password", "password reset"),
        ("Which cities were visited by the children", "child city visit"),
        ("By which children were cities visited", "child city visit"),
        ("Which children visited cities", "child visit city"),
        ("10 USD to EUR", "10 usd eur"),
        ("to EUR from USD 10", "10 eur usd"),
        ("is it not", None),
        ("how is it?", None),
        ("?!", None),
    ],
)
def test_a_form_by_hand(question: str, expected: str | None) -> None:
    assert form(question) == expected


def test_who_does_what_to_whom_is_part_of_the_form() -> None:
    """The guard compares the order of equal words only, so these two would pass it."""
    assert veto("Does a dog bite the man?", "Does the man bite the dog?") is None
    assert form("Does a dog bite the man?") != form("Does the man bite the dog?")


@UNHURRIED
@given(st.lists(st.sampled_from(["password", "reset", "city", "child"]), min_size=1, max_size=6), st.integers(0, 5))
def test_a_part_that_moves_from_the_end_to_the_start_changes_no_form(words: list[str], cut: int) -> None:
    assert form(" ".join(words)) == form(" ".join(words[cut:] + words[:cut]))
    assert sorted((form(" ".join(words)) or "").split()) == sorted(words)


def test_other_languages_keep_all_words_in_order() -> None:
    german = Lemmas("de")
    assert form("Wie setze ich meine Passwörter zurück", german) != form(
        "Wie setze ich zurück meine Passwörter", german
    )
    assert form("die Kinder", german) == form("das Kind", german)
    assert form("mit Kindern", german) != form("ohne Kinder", german)


def test_a_language_without_a_dictionary_is_refused() -> None:
    with pytest.raises(InputError, match=r"language of lemmas: got 'tlh', expected one of .*en, "):
        Lemmas("tlh")


# Pairs of one form, which only the guard keeps apart.
TRAPS = [
    ("Cancel my subscription", "Don't cancel my subscription"),
    ("Is it safe to swim?", "Is it not safe to swim?"),
    ("from Lyon to Nice", "from Nice to Lyon"),
]


@pytest.mark.parametrize(("asked", "answered"), TRAPS)
def test_what_has_one_form_is_still_for_the_guard(asked: str, answered: str) -> None:
    assert form(asked) == form(answered)
    assert veto(asked, answered) is not None


# --- twins -----------------------------------------------------------------------------------------------------------

GROUPS = (Group(HERE, b"1" * 32), Group(HERE, b"2" * 32))
FORMS, PRINTS = st.sampled_from("ab"), st.sampled_from([b"x" * 32, b"y" * 32, b"z" * 32])


@UNHURRIED
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(GROUPS), FORMS, PRINTS), max_size=60))
def test_twins_are_those_held_latest_first(steps: list[tuple[bool, Group, str, bytes]]) -> None:
    twins, held = Twins(), list[tuple[Group, str, bytes]]()
    for add, *place in steps:
        one = (place[0], place[1], place[2])
        if add and one not in held:
            twins.add(*one)
            held.append(one)
        elif not add and one in held:
            twins.remove(*one)
            held.remove(one)
    assert len(twins) == len(held)
    for group in GROUPS:
        for name in "ab":
            assert twins.of(group, name) == [f for g, n, f in reversed(held) if (g, n) == (group, name)]


def tier(toy: ToyEmbedder | None = None, named: dict[str, Lemmas | None] | None = None, **more: object) -> SemanticTier:
    lemmas = ByName(named if named is not None else {}, ENGLISH if named is None else None)
    options = SemanticOptions(0.8, lowest_threshold=0.5, lemmas=lemmas, **more)  # type: ignore[arg-type]
    return SemanticTier(toy or ToyEmbedder(), space(), options=options)


async def test_a_twin_answers_without_a_vector_and_says_that_it_is_another_question() -> None:
    toy = ToyEmbedder()
    t = tier(toy)
    await t.store(ask(ASKED), say("thus"), START)
    toy.broken = True
    found = await t.lookup(ask(TWIN), START)
    assert found is not None
    assert (found.answer.body, found.similarity) == (b"thus", MOST_SIMILAR)
    assert t.counts() == SemanticCounts(semantic_hits=1)


@pytest.mark.parametrize(("asked", "answered"), TRAPS)
async def test_a_twin_that_the_guard_rejects_does_not_answer(asked: str, answered: str) -> None:
    t = tier()
    await t.store(ask(answered), say("wrong"), START)
    assert await t.lookup(ask(asked), START) is None


async def test_behind_a_twin_that_the_guard_rejects_the_next_one_answers() -> None:
    t = tier()
    await t.store(ask("Is it safe to swim?"), say("right"), START)
    await t.store(ask("Is it not safe to swim?"), say("wrong"), START)
    found = await t.lookup(ask("Is swimming safe?"), START)
    assert found is not None
    assert found.answer.body == b"right"
    assert t.counts() == SemanticCounts(semantic_hits=1, vetoes=1)


async def test_twins_cross_no_partition_no_context_and_no_side() -> None:
    t = tier(side_of=lambda key: key.fingerprint == ask(TWIN).fingerprint)
    await t.store(ask(ASKED), say("thus"), START)
    assert await t.lookup(ask(TWIN), START) is None  # of the other side
    t = tier()
    await t.store(ask(ASKED), say("thus"), START)
    for partition, context in ((Partition("b", "x"), b"c"), (Partition("a", "y"), b"c"), (HERE, b"d")):
        assert await t.lookup(ask(TWIN, partition, context), START) is None


async def test_only_namespaces_with_lemmas_have_twins() -> None:
    t = tier(named={"y": ENGLISH})
    for namespace, served in (("x", False), ("y", True)):
        partition = Partition("a", namespace)
        await t.store(ask(ASKED, partition), say("thus"), START)
        assert (await t.lookup(ask(TWIN, partition), START) is not None) == served


async def test_equal_requests_only_means_no_twins_either() -> None:
    t = tier()
    await t.store(ask(ASKED), say("thus"), START)
    t.set_similarity_threshold(None)
    assert await t.lookup(ask(TWIN), START) is None
    assert await t.lookup(ask(ASKED), START) is not None


async def test_twins_leave_with_their_entries_and_are_too_old_when_these_are() -> None:
    t = tier()
    for question in (ASKED, TWIN, "where is the station"):
        await t.store(ask(question), say("x"), START)
        await t.store(ask(question), say("again"), START)
    assert len(t._twins) == 3
    await t.delete(ask(ASKED))
    found = await t.lookup(ask("reset password"), START)
    assert found is not None
    assert found.answer.body == b"again"
    await t.clear(Selection(HERE))
    assert (len(t._twins), len(t.vectors)) == (0, 0)
    await t.store(ask(ASKED), say("old", ttl=5.0), START)
    assert await t.lookup(ask(TWIN), START + 5) is None
    await t.apply(KnobSettings(1.0, ENDLESS, 0.0), START + 5)
    while await t.tend(START + 5):
        pass
    assert len(t._twins) == 0


QUESTIONS = ("reset my password", "resetting passwords", "where is the station", "the stations: where", "who wrote it")
STEPS = st.lists(
    st.tuples(st.sampled_from(["store", "warm", "delete", "lookup"]), st.sampled_from(QUESTIONS), st.integers(0, 3)),
    max_size=40,
)


@settings(UNHURRIED, max_examples=40)
@given(STEPS)
async def test_twins_are_those_of_the_entries_whatever_happens(steps: list[tuple[str, str, int]]) -> None:
    options = SemanticOptions(0.8, lowest_threshold=0.5, lemmas=ByName({}, ENGLISH))
    t, now = SemanticTier(ToyEmbedder(), space(capacity=5_000.0, ttl=6.0), options=options), START
    for what, question, later in steps:
        now += later
        key = ask(question)
        if what == "delete":
            await t.delete(key)
        elif what == "lookup":
            found = await t.lookup(key, now)
            assert found is None or form(found.answer.body.decode()) == form(question)
        else:
            await (t.store if what == "store" else t.warm)(key, say(question, written=now), now)
        held = [key for key, _ in t.entries()]
        assert len(t._twins) == len(held) == len(t.vectors)
        for one in held:
            assert one.fingerprint in t._twins.of(Group(one.partition, one.context), form(one.question or "") or "")


# --- edits -----------------------------------------------------------------------------------------------------------


def test_edits_by_hand() -> None:
    # kitten, sitting: two replaced, one inserted, of seven characters
    assert share_of_edits("kitten", "sitting") == pytest.approx(3 / 7)
    assert share_of_edits("kitten", "sitting", 0.15) == 1.0
    assert share_of_edits("", "") == 0.0
    assert share_of_edits("", "ab") == 1.0


@UNHURRIED
@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_edits_as_the_table_of_distances_has_them(one: str, other: str) -> None:
    rows = [list(range(len(other) + 1))]
    for place, character in enumerate(one, 1):
        row = [place]
        for there, against in enumerate(other, 1):
            row.append(min(rows[-1][there] + 1, row[-1] + 1, rows[-1][there - 1] + (character != against)))
        rows.append(row)
    longer = max(len(one), len(other), 1)
    assert share_of_edits(one, other) == pytest.approx(rows[-1][-1] / longer)


async def test_a_neighbour_that_differs_in_too_many_characters_is_rejected() -> None:
    question, other = "how do i reset my password", "how can i reset my password"  # 3 of 27 characters
    for most, served in ((3 / 27, True), (2 / 27, False), (None, True)):
        t = SemanticTier(ToyEmbedder(), space(), options=SemanticOptions(0.8, lowest_threshold=0.5, most_edits=most))
        await t.store(ask(question), say("thus"), START)
        assert (await t.lookup(ask(other), START) is not None) == served
        assert t.counts().vetoes == (not served)


def test_a_share_of_edits_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match=r"most_edits: got 1\.5"):
        SemanticTier(ToyEmbedder(), space(), options=SemanticOptions(most_edits=1.5))
