"""What a namespace allows: which answers may be kept, and which differences between requests do not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from caches.errors import InputError
from caches.keys.canonical import encode, refused
from caches.keys.fields import ALWAYS_COUNTED, LEFT_OUT, Endpoint
from caches.keys.structure import EXACT, TRACKING_FIELDS, Structure

FORM_VERSION = 1  # of the canonical form; to be raised whenever equal bodies would get another fingerprint


@dataclass(frozen=True)
class KeyRules:
    """The rules of one namespace. The defaults never serve an answer that the backend would not give again.

    allow_sampled: keep answers of a temperature above 0, and where none is stated. allow_seeded: keep these where the
    request fixes a seed. allow_stored: keep answers of requests that ask the backend to store them; a hit stores
    nothing there. openai_defaults: an absent temperature, top_p, verbosity or (for completions) max_tokens means what
    the OpenAI API documents; leave it off for servers that take these from the model, as vLLM and SGLang do.
    trim_text: white space at both ends of system, developer and user messages does not count. left_out: fields of the
    body that do not count. structure: what else in the way that a request is written does not count.
    """

    allow_sampled: bool = False
    allow_seeded: bool = False
    allow_stored: bool = False
    openai_defaults: bool = False
    trim_text: bool = False
    left_out: frozenset[str] = LEFT_OUT
    structure: Structure = EXACT
    dropped: frozenset[str] = field(init=False, repr=False, compare=False)  # all fields that do not count
    rewrites: bool = field(init=False, repr=False, compare=False)  # whether `structure` has to be asked at all
    # 32 bytes that begin every hash: under other rules, equal bodies may have stood for other requests
    form: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        needed = self.left_out & ALWAYS_COUNTED
        if needed:
            raise InputError(f"left_out: got {min(needed)!r}, expected fields that requests can do without")
        stated = self.structure.stated
        form = [
            FORM_VERSION,
            self.openai_defaults,
            self.trim_text,
            [*sorted(self.left_out)],
            *([stated] if stated else ()),
        ]
        object.__setattr__(self, "form", sha256(encode(form)).digest())
        object.__setattr__(self, "rewrites", bool(stated))
        tracking = TRACKING_FIELDS if self.structure.tracking_fields else frozenset()
        object.__setattr__(self, "dropped", self.left_out | tracking)


def why_not_cached(endpoint: Endpoint, body: object, rules: KeyRules) -> str | None:
    """Why the answer to this request must neither be kept nor be taken from a cache, as a sentence; None where it may.

    Raises InputError where the body is no object, or a field that decides this is not what it should be.
    """
    if not isinstance(body, dict):
        raise refused("body", body, "a JSON object")
    if endpoint is Endpoint.EMBEDDINGS:  # nothing is sampled
        return None
    if _flag(body, "store") and not rules.allow_stored:
        return "The request asks the backend to store its completion, which a hit would not do (allow_stored)."
    temperature, seed = _number(body, "temperature"), _number(body, "seed")
    if temperature == 0 or rules.allow_sampled or (seed is not None and rules.allow_seeded):
        return None
    stated = "no temperature is stated" if temperature is None else f"the temperature is {temperature}"
    if seed is not None:
        return f"The answer is sampled with a fixed seed ({stated}), which this namespace does not keep (allow_seeded)."
    return f"The answer is sampled ({stated}), which this namespace does not keep (allow_sampled)."


def _flag(body: dict[str, object], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise refused(name, value, "true or false")
    return bool(value)


def _number(body: dict[str, object], name: str) -> int | float | None:
    value = body.get(name)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise refused(name, value, "a number")
