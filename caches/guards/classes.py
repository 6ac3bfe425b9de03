"""Classes of prompts: requests told apart by what they say and how long they are, each with a health of its own.

A kind of request that makes the backend fail, or that it answers slowly, is kept back alone; all others go on. The
first class that fits counts. Patterns see the text only up to a bound, since they are an operator's and may be costly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from caches.errors import InputError
from caches.guards.health import Health, HealthRule

SEARCHED_CHARACTERS = 20_000


@dataclass(frozen=True)
class ClassRule:
    """patterns: regular expressions, any of which has to be found; none: all texts fit. least_tokens: of the prompt, as
    estimated. most_tokens: None for any. refused: always kept back, whatever its health."""

    name: str
    patterns: tuple[str, ...] = ()
    least_tokens: float = 0.0
    most_tokens: float | None = None
    refused: bool = False
    health: HealthRule = field(default_factory=HealthRule)


class PromptClass:
    """One class, with what is known of it. Raises InputError for what is no regular expression."""

    def __init__(self, rule: ClassRule) -> None:
        self.rule, self.health, self.asked = rule, Health(rule.health), 0
        self._patterns = [_compiled(rule.name, pattern) for pattern in rule.patterns]

    def fits(self, text: str, prompt_tokens: float) -> bool:
        least, most = self.rule.least_tokens, self.rule.most_tokens
        if prompt_tokens < least or (most is not None and prompt_tokens > most):
            return False
        return not self._patterns or any(one.search(text, 0, SEARCHED_CHARACTERS) for one in self._patterns)


class PromptClasses:
    """In their order."""

    def __init__(self, rules: Sequence[ClassRule]) -> None:
        names = [rule.name for rule in rules]
        if len({*names}) < len(names):
            raise InputError(f"classes: got the names {', '.join(names)}, expected each once")
        self.classes = tuple(map(PromptClass, rules))

    def of(self, text: str, prompt_tokens: float) -> PromptClass | None:
        """The first that fits; it is counted as asked for."""
        found = next((one for one in self.classes if one.fits(text, prompt_tokens)), None)
        if found is not None:
            found.asked += 1
        return found


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"classes.{name}.patterns: got {pattern!r}, expected a regular expression ({error})") from None
