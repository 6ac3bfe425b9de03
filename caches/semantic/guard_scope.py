"""The guard's rules on scope: for whom it is asked, and what narrows one question and not the other."""

from __future__ import annotations

from caches.semantic.guard_alike import subject
from caches.semantic.guard_reading import Reading, carries

_PERSONS = """
    child son daughter baby toddler teenager adult senior pensioner mother father parent grandmother grandfather
    grandparent grandma grandpa grandchild wife husband spouse partner boyfriend girlfriend brother sister sibling
    cousin aunt uncle nephew niece family relative friend colleague coworker employee employer tenant landlord
    neighbour neighbor student teacher guest visitor passenger dog puppy cat kitten pet
"""
# Before a word of the subject these narrow nothing.
_FILLERS = """
    right proper actual actually currently normally usually typically exact exactly still stay simply good best easiest
    quickest main general generally overall certain specific particular forgotten properly correctly easily quickly one
    someone somebody anyone anybody people
"""
PERSONS = frozenset(subject(word) for word in _PERSONS.split())
FILLERS = frozenset(subject(word) for word in _FILLERS.split())


def persons(asked: Reading, answered: Reading) -> str | None:
    """The same persons and animals come up: "for my child", "for my mother", or for nobody in particular."""
    here, there = asked.content & PERSONS, answered.content & PERSONS
    if here == there:
        return None
    return f"They are about others: {_listed(here)} and {_listed(there)}."


def added(asked: Reading, answered: Reading) -> str | None:
    """Where all else is the same and in the same order, no word stands in front of another that stands without it in
    the other question: "my account", "my joint account"."""
    longer, shorter = (asked, answered) if len(asked.content) > len(answered.content) else (answered, asked)
    more = longer.content - shorter.content
    if not more or not shorter.content < longer.content:
        return None
    if [word for word in _subjects(longer) if word not in more] != list(_subjects(shorter)):
        return None
    for word, following in zip(longer.words, longer.words[1:], strict=False):
        narrows = carries(word) and carries(following) and subject(word) in more - FILLERS
        if narrows and subject(following) in shorter.content:
            return f"Only one of them says {word} {following}."
    return None


def _subjects(reading: Reading) -> tuple[str, ...]:
    """The words that carry the subject, by stem, in order."""
    return tuple(subject(word) for word in reading.words if carries(word))


def _listed(stems: frozenset[str]) -> str:
    return ", ".join(sorted(stems)) or "nobody"
