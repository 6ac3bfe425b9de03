"""What the guard reads off one question. Pure, and kept with each stored question, so that it is read once."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from caches.semantic.guard_alike import FUNCTION_WORDS, subject
from caches.semantic.guard_words import (
    EXCLUSIONS,
    KNOWN_NAMES,
    NEGATIONS,
    NO_NAMES,
    NUMBER_WORDS,
    UNITS,
)


@dataclass(frozen=True)
class Reading:
    """text: with plain quotes and single spaces. words: lower case, contractions undone, in order. numbers: value and
    unit, in order. literals: what has to be the same to the letter. names: words that were written as names, and
    known ones. negations: how many. exclusions: words that leave something out. content: the words that carry the
    subject, by stem, words that mean much the same as one. asks: what kind of answer is asked for, None where that is
    not clear. legible: whether the script is one that the guard's rules can read."""

    text: str
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    literals: frozenset[str]
    names: frozenset[str]
    negations: int
    exclusions: tuple[str, ...]
    content: frozenset[str]
    asks: str | None
    legible: bool


_PLAIN = str.maketrans(
    {"‘": "'", "’": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-", "–": "-"}
)
_LITERAL = re.compile(
    r"""
      https?://[^\s"'<>]+ | www\.[^\s"'<>]+                                 # addresses
    | [\w.+-]+@[\w-]+\.[\w.]+                                               # mail
    | `[^`]+` | "[^"]+" | (?<!\w)'[^']+'(?!\w)                              # quoted
    | \b\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b                                   # dates and addresses of hosts
    | \bv?\d+(?:\.\d+){2,}\b | \bv\d+(?:\.\d+)*\b                           # versions
    | \b\d{1,2}:\d{2}(?::\d{2})?\b                                          # times of day
    | (?<!\w)(?:[~.]{0,2}/)[\w.~-]+(?:/[\w.~-]+)*                           # paths
    | \b[A-Za-z]:\\[\w\\.-]+
    | (?<!\w)--?[A-Za-z][\w-]*                                              # flags
    | \b\w+\(\)                                                             # calls
    | \b[A-Za-z]\w*(?:::\w+|->\w+)+                                         # members
    | \b\w+(?:_\w+)+\b | \b__\w+__\b                                        # snake_case
    | \b[a-z]+[A-Z]\w*\b | \b[A-Z][a-z]+[A-Z]\w*\b                          # camelCase
    | \b[A-Za-z][\w-]*(?:\.[A-Za-z_]\w*)+\b                                 # file.names and dotted.names
    | (?<!\w)\.[a-z]\w+\b                                                   # .extensions
    | \b[A-Za-z]+\+\+ | \b[A-Za-z]\#                                        # C++ and C#
    """,
    re.VERBOSE,
)
# Cheap, and most questions hold none: what every literal has in it.
_MAY_HOLD_LITERAL = re.compile(r"[`\"/\\_#+@]|(?<!\w)['-]|\.\w|\(\)|::|->|\d|[a-z][A-Z]")
_MIXED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*\d)\w+\b")  # letters and digits in one word
_NUMBER = re.compile(
    r"(?<![\w.])(?P<before>[$€£¥]\s?)?(?P<value>-?\d[\d,]*(?:\.\d+)?)\s?(?P<after>[%$€£¥]|°\s?[CcFf]?|[A-Za-z/]+)?"
)
_NUMBER_WORD = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(NUMBER_WORDS)})(?![A-Za-z])", re.IGNORECASE | re.ASCII)
_ATTACHED = re.compile(r"^(\d[\d.,]*)([A-Za-z]+)$")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d[\d.,]*\w*")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n+")
_PHRASES = (
    (
        re.compile(
            r"\b(log|sign|opt|check|clock)(?:ged|ging|ted|ting|s|ing|ed)?[\s-]+(in|out|on|off)\b", re.IGNORECASE
        ),
        r"\1\2",
    ),
    (re.compile(r"\bset(?:ting|s)?\s+up\b", re.IGNORECASE), "setup"),
    (re.compile(r"\bor\s+not\b|\bnot\s+only\b|\bwhy\s+not\b|\bno\s+longer\b", re.IGNORECASE), " "),
)
_SAME_WORD = {"logon": "login", "logoff": "logout", "signon": "signin", "signoff": "signout"}


def read(question: str) -> Reading:
    plain = question if question.isascii() else unicodedata.normalize("NFKC", question).translate(_PLAIN)
    text = " ".join(plain.split())
    literals, rest = _literals(text)
    words = _words(text)
    return Reading(
        text=text,
        words=words,
        numbers=_numbers(rest),
        literals=literals | _identifiers(rest),
        names=_names(text, words),
        negations=sum(word in NEGATIONS for word in words),
        exclusions=tuple(word for word in words if word in EXCLUSIONS),
        content=frozenset(subject(word) for word in words if carries(word)),
        asks=_asks(text),
        legible=_legible(text),
    )


def _literals(text: str) -> tuple[frozenset[str], str]:
    """They, and the text without them."""
    if _MAY_HOLD_LITERAL.search(text) is None:
        return frozenset(), text
    found = frozenset(match.group().strip("`\"'.,;:!?") for match in _LITERAL.finditer(text))
    return found - {""}, _LITERAL.sub(" ", text)


def _words(text: str) -> tuple[str, ...]:
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    words: list[str] = []
    for match in _WORD.finditer(text):
        words.extend(word for word in _undone(match.group().casefold().rstrip(".,")) if word)
    return tuple(words)


def _undone(word: str) -> list[str]:
    """can't -> can, not; it's -> it; a possessive loses its s."""
    if word.endswith("n't"):
        stem = {"ca": "can", "wo": "will", "sha": "shall"}.get(word[:-3], word[:-3])
        return [stem, "not"]
    stem = word.partition("'")[0]
    return [_SAME_WORD.get(stem, stem)]


def carries(word: str) -> bool:
    """Whether it belongs to the subject; numbers and units have a rule of their own."""
    return not (word[0].isdigit() or word in FUNCTION_WORDS or word in NUMBER_WORDS or word in UNITS)


def _numbers(rest: str) -> tuple[str, ...]:
    """In order of place, number words as figures. 1,000 is 1000; 1.50 stays apart from 1.5, as versions must."""
    in_figures = _NUMBER_WORD.sub(lambda match: NUMBER_WORDS[match.group().casefold()], rest)
    return tuple(_number(match) for match in _NUMBER.finditer(in_figures))


def _number(match: re.Match[str]) -> str:
    value = match["value"].replace(",", "")
    unit = (match["before"] or match["after"] or "").strip().replace(" ", "").casefold()
    return value + UNITS.get(unit, "")


def _identifiers(rest: str) -> frozenset[str]:
    """gpt4, h2o, x86: words of letters and digits that are no number with its unit."""
    found = set()
    for match in _MIXED.finditer(rest):
        attached = _ATTACHED.match(match.group())
        if attached is None or attached[2].casefold() not in UNITS:
            found.add(match.group())
    return frozenset(found)


def _names(text: str, words: tuple[str, ...]) -> frozenset[str]:
    """Capitalised words that do not begin a sentence, acronyms anywhere, and known names however they are written.
    Where nearly all words have a capital, capitals say nothing."""
    known = frozenset(word for word in words if word in KNOWN_NAMES)
    spelled = [match.group() for match in _WORD.finditer(text) if match.group()[0].isalpha()]
    long = [word for word in spelled if len(word) > 3]
    if len(long) > 2 and sum(word[0].isupper() for word in long) > 0.7 * len(long):
        return known
    found: set[str] = set()
    for sentence in _SENTENCE.split(text):
        for index, match in enumerate(_WORD.finditer(sentence)):
            word = match.group()
            acronym = len(word) > 1 and word.isupper()
            if acronym or (index > 0 and word[0].isupper()):
                found.add(word.casefold().partition("'")[0])
    return known | (found - NO_NAMES)


# --- what is asked for ---------------------------------------------------------------------------------------------

_LEAD_IN = re.compile(
    r"^(?:(?:hi|hello|hey|please|so|and|ok|okay|well|can you|could you|would you|will you|do you|does anyone|"
    r"i want to|i need to|i would like to|i'd like to|tell me|explain|describe|show me|let me|know|remind me|"
    r"help me understand|understand|find out|to|me|wondering|i am|i'm|just|exactly|approximately|about|in|at|on|by|"
    r"for|since|until|from)[\s,]+)+",
    re.IGNORECASE,
)
_KINDS = (
    ("how many", r"how many|(?:what|which) (?:is |was |are )?(?:the )?number of|the number of|what number of"),
    ("how much", r"how much|(?:what|which) (?:is |was |does )?(?:the )?(?:price|cost|amount)\b"),
    ("how long", r"how long|(?:what|which) (?:is |was )?(?:the )?(?:duration|length)\b"),
    ("how often", r"how (?:often|frequently)|what (?:is |was )?(?:the )?frequency\b"),
    ("how far", r"how far|what (?:is |was )?(?:the )?distance\b"),
    ("how old", r"how old|what (?:is |was )?(?:the )?age\b"),
    (
        "why",
        r"why|how come|for what reason|what(?: is| was| are|'s)? (?:the )?(?:reasons?|causes?)\b|"
        r"what (?:makes|made|caused|causes)\b",
    ),
    ("when", r"when|(?:what|which)(?: is| was|'s)? (?:the )?(?:time|year|date|day|month|century)\b"),
    ("where", r"where|(?:what|which)(?: is| was|'s)? (?:the )?(?:place|location)\b"),
    ("who", r"who|whom|whose|(?:what|which) person\b"),
    (
        "how",
        r"how|(?:what|which)(?: is| are|'s)? (?:the )?(?:best |easiest |right |correct )?"
        r"(?:way|ways|steps?|procedure|method)\b",
    ),
    ("what", r"what|which|what's"),
    ("whether", r"is|are|was|were|does|do|did|has|have|had|can|could|will|would|should|may|might|must"),
)
_KIND_PATTERNS = tuple((kind, re.compile(rf"^(?:{pattern})\b", re.IGNORECASE)) for kind, pattern in _KINDS)


def _asks(text: str) -> str | None:
    """Of the last sentence that shows it, since what comes before a question is its story."""
    for sentence in reversed(_SENTENCE.split(text)):
        start = _LEAD_IN.sub("", sentence.strip())
        for kind, pattern in _KIND_PATTERNS:
            if pattern.match(start):
                return kind
    return None


def _legible(text: str) -> bool:
    """At least half of the letters are Latin."""
    if text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character < "ɐ" for character in letters) >= len(letters)
