"""Questions by the words that carry their subject, each as a dictionary lists it. Nobody else knows simplemma.

Two questions of one form are about the same: "how do I reset my passwords", "password reset". That they ask the same is
likely and not certain, since small words are gone ("is it not safe"). So a form only proposes, and the guard decides,
as it does on questions with similar vectors. It costs no embedding.
"""

from __future__ import annotations

from caches.errors import InputError
from caches.semantic.guard_alike import FUNCTION_WORDS
from caches.semantic.guard_reading import Reading, read
from caches.semantic.questions import LONGEST_QUESTION, speaks

ENGLISH = "en"  # which the guard can read


class Lemmas:
    """Of one language. name: which dictionary it is."""

    def __init__(self, language: str) -> None:
        # a tenth of a second, which most commands need not wait for
        from simplemma import Lemmatizer
        from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

        if language not in SUPPORTED_LANGUAGES:
            known = ", ".join(sorted(SUPPORTED_LANGUAGES))
            raise InputError(f"language of lemmas: got {language[:20]!r}, expected one of {known}")
        self.language, self.name = language, f"simplemma {language}"
        self._lemmatizer = Lemmatizer()  # remembers words

    def form(self, reading: Reading) -> str | None:
        """None where nothing is left. In languages that the guard cannot read all words are kept, in their order: there
        nobody would notice the small ones that say the contrary."""
        if self.language != ENGLISH:
            return " ".join(map(self.of_word, reading.words)) or None
        words = [self.of_word(word) for word in reading.words if word not in FUNCTION_WORDS]
        # as the guard has it, a part may move from the end to the start; else the order counts: who bites whom
        turned = (words[place:] + words[:place] for place in range(len(words)))
        return " ".join(min(turned, default=[])) or None

    def form_of(self, question: str) -> str | None:
        """As `form`; None also for a question that is not matched by meaning."""
        return self.form(read(question)) if speaks(question, LONGEST_QUESTION) else None

    def of_word(self, word: str) -> str:
        """As its dictionary lists it, in small letters; a word that it does not know stays."""
        return self._lemmatizer.lemmatize(word, self.language).lower()
