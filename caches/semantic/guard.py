"""The guard: what tells two questions apart although they are similar. Pure functions; a rule gives a reason or None.

Similarity measures what two questions are about, hardly what they say: "is it safe" and "is it not safe" are neighbours
in every embedding. So a rule here never makes a hit, it only forbids one. All of them err to the same side: a wrong
veto costs a call of the backend, a veto missed costs a wrong answer.

The rules are for English. In other languages with Latin letters numbers, names, quotations and identifiers hold still;
texts in other scripts are never matched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher

from caches.semantic.guard_reading import Reading, read
from caches.semantic.guard_scope import added, persons
from caches.semantic.guard_words import (
    AUXILIARIES,
    DETERMINERS,
    NEGATIONS,
    OPPOSITE_PREFIXES,
    OPPOSITES,
    ROLES,
    SYMMETRIC,
)

SAME_BUT_FOR_SPELLING = 0.75  # share of letters in common, of two words of one length
Rule = Callable[[Reading, Reading], str | None]

MEASURED_KINDS = frozenset({"when", "how many", "how much", "how long", "how often", "how far", "how old"})
STRICT_KINDS = MEASURED_KINDS | {"who", "where", "why"}


def veto(asked: str, answered: str) -> str | None:
    """Why the answer to one question must not be given to the other, as a sentence; None where nothing speaks against
    it. Symmetric."""
    return veto_between(read(asked), read(answered))


def veto_between(asked: Reading, answered: Reading) -> str | None:
    """The first rule's reason, in the order of RULES."""
    if asked.text == answered.text:
        return None
    for rule in RULES.values():
        reason = rule(asked, answered)
        if reason is not None:
            return reason
    return None


def script(asked: Reading, answered: Reading) -> str | None:
    """Neither is mostly written in a script that the other rules cannot read."""
    return None if asked.legible and answered.legible else "The rules of the guard do not cover this script."


def numbers(asked: Reading, answered: Reading) -> str | None:
    """The same numbers with the same units in the same order."""
    if asked.numbers == answered.numbers:
        return None
    return f"The numbers differ: {_listed(asked.numbers)} and {_listed(answered.numbers)}."


def negation(asked: Reading, answered: Reading) -> str | None:
    """As many words of negation (not, n't, never, no...), and the same words of exclusion (without, except...)."""
    if asked.negations != answered.negations:
        return "One of them negates what the other does not."
    if sorted(asked.exclusions) != sorted(answered.exclusions):
        return f"What is excluded differs: {_listed(asked.exclusions)} and {_listed(answered.exclusions)}."
    return None


def literals(asked: Reading, answered: Reading) -> str | None:
    """Quotations, addresses, file names, identifiers, versions, dates and times of either stand in the other too, to
    the letter and in the same order."""
    literal = asked.literals | answered.literals
    here, there = _places(literal, asked.text), _places(literal, answered.text)
    missing = literal - (here.keys() & there.keys())
    if missing:
        return f"Only one of them holds {_listed(sorted(missing))}."
    if sorted(literal, key=here.__getitem__) != sorted(literal, key=there.__getitem__):
        return f"{_listed(sorted(literal))} stand in another order."
    return None


def names(asked: Reading, answered: Reading) -> str | None:
    """What is a name in either stands in both, in the same order. A name may be written small in one of them, and begin
    a sentence. In a question about the difference between two the order says nothing."""
    vocabulary = asked.names | answered.names
    here, there = _among(asked.words, vocabulary), _among(answered.words, vocabulary)
    if _is_symmetric(asked) and _is_symmetric(answered):
        here, there = tuple(sorted(here)), tuple(sorted(there))
    return None if here == there else f"The names differ: {_listed(here)} and {_listed(there)}."


def opposites(asked: Reading, answered: Reading) -> str | None:
    """No word stands where its opposite does: by the list, by a prefix (safe, unsafe) or by an ending (harmful,
    harmless)."""
    groups = {group for word in (*asked.words, *answered.words) for group, _ in _GROUPS_OF.get(word, ())}
    for group in sorted(groups):
        here, there = _of_group(group, asked), _of_group(group, answered)
        if here and there and here != there:
            return f"Opposites: {_listed(here)} and {_listed(there)}."
    first, second = set(asked.words), set(answered.words)
    for one, other in ((first - second, second - first), (second - first, first - second)):
        pair = _by_form(one, other)
        if pair is not None:
            return f"Opposites: {_listed(pair)}."
    return None


def kind(asked: Reading, answered: Reading) -> str | None:
    """The same kind of answer is asked for: a person, a time, a place, a reason, a number... Kinds that are often put
    either way (how, what, yes or no) agree with each other, and what agrees with times and quantities too ("what does
    it cost", "how much is it"). An unclear kind agrees with all."""
    one, other = asked.asks, answered.asks
    kinds = {one, other}
    if None in kinds or one == other or not kinds & STRICT_KINDS:
        return None
    if "what" in kinds and kinds & MEASURED_KINDS:
        return None
    return f"One asks {one}, the other {other}."


def roles(asked: Reading, answered: Reading) -> str | None:
    """Two words have not changed places around from, to, than, of...; and the same words are in the same order,
    but for a part moved from the end to the start."""
    one, other = _in_order(asked, answered)
    if sorted(one) == sorted(other) and not _rotated(one, other):
        return "The same words stand in another order."
    if sorted(one) == sorted(other):
        return None
    here, there = _after_roles(asked.words), _after_roles(answered.words)
    for role in sorted(here.keys() & there.keys()):
        mine, theirs = here[role] - there[role], there[role] - here[role]
        if mine & set(answered.words) and theirs & set(asked.words):
            return f"{_listed(sorted(mine))} and {_listed(sorted(theirs))} have changed places after {role!r}."
    return None


def swap(asked: Reading, answered: Reading) -> str | None:
    """Not all but one word is the same: "side effects of amoxicillin", "side effects of atorvastatin". Small words do
    not count, nor do different endings and spellings, nor words that mean much the same by the list."""
    mine, theirs = asked.content - answered.content, answered.content - asked.content
    if len(mine) != 1 or len(theirs) != 1 or not asked.content & answered.content:
        return None
    one, other = sorted(mine | theirs)
    if SequenceMatcher(None, one, other, autojunk=False).ratio() >= SAME_BUT_FOR_SPELLING:
        return None
    return f"{one} stands in place of {other}."


RULES: Mapping[str, Rule] = {
    "script": script,
    "numbers": numbers,
    "negation": negation,
    "literals": literals,
    "names": names,
    "opposites": opposites,
    "kind": kind,
    "roles": roles,
    "swap": swap,
    "persons": persons,
    "added": added,
}


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"


def _is_symmetric(reading: Reading) -> bool:
    return any(phrase in reading.text.casefold() for phrase in SYMMETRIC)


def _among(words: Iterable[str], vocabulary: frozenset[str]) -> tuple[str, ...]:
    """Those of the vocabulary, in order, a repetition counted once."""
    return tuple(dict.fromkeys(word for word in words if word in vocabulary))


def _places(literal: Iterable[str], text: str) -> dict[str, int]:
    """Where each stands as a whole, for those that do."""
    found = ((item, re.search(rf"(?<!\w){re.escape(item)}(?!\w)", text)) for item in literal)
    return {item: match.start() for item, match in found if match is not None}


def _forms(word: str) -> set[str]:
    """A word with the endings that it may have. Some of them are no words, which does no harm."""
    stem, last = word.rstrip("e"), word[-1]
    doubled = {word + last + "ing", word + last + "ed"} if last not in "aeiouwxy" else set()
    ion = {stem + "ion", stem + "ation"} if len(word) > 4 else set()
    return {word, word + "s", word + "es", word + "ed", stem + "ed", word + "ing", stem + "ing", *ion, *doubled}


def _groups_of() -> dict[str, list[tuple[int, str]]]:
    """From each form of each word to its groups and the word itself."""
    found: dict[str, list[tuple[int, str]]] = {}
    for number, group in enumerate(OPPOSITES):
        for word in group:
            for form in _forms(word):
                found.setdefault(form, []).append((number, word))
    return found


_GROUPS_OF = _groups_of()


def _of_group(group: int, reading: Reading) -> tuple[str, ...]:
    """The words of one group, in order, by their base forms."""
    return tuple(
        dict.fromkeys(base for word in reading.words for number, base in _GROUPS_OF.get(word, ()) if number == group)
    )


def _by_form(plain: set[str], other: set[str]) -> tuple[str, str] | None:
    """A word of the first set whose opposite, made of itself, is in the second."""
    for word in sorted(plain):
        if len(word) < 4:
            continue
        made = {prefix + word for prefix in OPPOSITE_PREFIXES} | {word + "less"}
        if word.endswith("ful"):
            made.add(word[:-3] + "less")
        found = made & other
        if found:
            return word, min(found)
    return None


def _in_order(asked: Reading, answered: Reading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of both; without the negation where each has one and one of them opens with it, since "why doesn't it
    start" is "why does it not start"."""
    if asked.negations == answered.negations == 1 and (_opens_negated(asked) or _opens_negated(answered)):
        one, other = ([word for word in reading.words if word not in NEGATIONS] for reading in (asked, answered))
        return tuple(one), tuple(other)
    return asked.words, answered.words


def _rotated(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether a part at the end of one stands at the start of the other; true of equals."""
    return any(one[cut:] + one[:cut] == other for cut in range(max(len(one), 1)))


def _opens_negated(reading: Reading) -> bool:
    start = reading.words[1:] if reading.words[0] == "why" else reading.words
    return len(start) > 1 and start[0] in AUXILIARIES and start[1] in NEGATIONS


def _after_roles(words: tuple[str, ...]) -> dict[str, set[str]]:
    """The first word, determiners left out, after each word that gives it a part to play."""
    found: dict[str, set[str]] = {}
    for index, word in enumerate(words):
        if word in ROLES:
            following = next((later for later in words[index + 1 :] if later not in DETERMINERS), None)
            if following is not None:
                found.setdefault(word, set()).add(following)
    return found
