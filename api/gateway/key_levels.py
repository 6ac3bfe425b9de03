"""What the access log keeps of a request's key beside the one in use, where that is asked for."""

from __future__ import annotations

from collections.abc import Callable

from api.gateway.asked import Asked
from caches.errors import InputError
from caches.keys.levels import level_ids
from caches.semantic.lemmas import Lemmas


def levels_by(language: str) -> Callable[[Asked], tuple[bytes, ...] | None]:
    """From a request to its names at every level. language: of the questions. Raises InputError for one without a
    dictionary."""
    form_of = Lemmas(language).form_of

    def levels_of(asked: Asked) -> tuple[bytes, ...] | None:
        try:
            return level_ids(asked.endpoint, asked.raw, asked.key.partition, form_of)
        except InputError:
            return None  # a field that the key leaves out cannot be put into a form: then nothing is known

    return levels_of
