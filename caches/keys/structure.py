"""Differences in how a request is written that a namespace takes for none: each a rule of its own, off by default.

All of them say less than the backend is told, so each can merge two requests that it would have answered differently;
docs/keys.md says when. They are pure, idempotent, and touch system, developer and user messages only: what an assistant
said may have to be continued to the letter, and so may a `prompt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from caches.errors import InputError
from caches.keys.addresses import plain_address, without_parameters
from caches.keys.canonical import Json
from caches.keys.lines import Clock, coarse_clock, label_of, without_values
from caches.keys.prose import is_prose

INSTRUCTED = frozenset({"system", "developer"})
WRITTEN = INSTRUCTED | {"user"}
NEVER_FOLDED = frozenset({"messages", "prompt", "input"})

# Fields that say who sent a request, when and by which way; not of the OpenAI API, but of clients and proxies.
TRACKING_FIELDS = frozenset(
    {
        "client_id",
        "correlation_id",
        "litellm_call_id",
        "litellm_trace_id",
        "request_id",
        "session_id",
        "span_id",
        "timestamp",
        "trace_id",
        "traceparent",
        "user_agent",
    }
)
TRACKING_LABELS = (
    "client version", "correlation id", "request id", "session id", "span id", "trace id", "traceparent", "user agent",
    "x request id",
)  # fmt: skip
TRACKING_PARAMETERS = ("utm_*", "fbclid", "gclid", "msclkid", "mc_cid", "mc_eid")

_LINE_END = re.compile("\r\n?|\u2028|\u2029|\u0085")
_SPACES = re.compile("[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_SPACE_BEFORE_END = re.compile(r" (?=\n)")
_BLANK_LINES = re.compile(r"\n{3,}")
_CAPITALS = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True)
class Structure:
    """The rules. The defaults change nothing.

    line_ends: all that end a line are one. spaces: in prose, runs of spaces, spaces before the end of a line and more
    than one blank line say nothing. clock: see `Clock`, of lines in system and developer messages. ignored_lines:
    labels there whose values do not count. addresses: of images, in one spelling. ignored_parameters: of these
    addresses; a name may end in `*`. tracking_fields: TRACKING_FIELDS do not count. folded_fields: fields of the body
    whose texts are compared in small letters (ASCII).
    """

    line_ends: bool = False
    spaces: bool = False
    clock: Clock = Clock.EXACT
    ignored_lines: frozenset[str] = frozenset()
    addresses: bool = False
    ignored_parameters: tuple[str, ...] = ()
    tracking_fields: bool = False
    folded_fields: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ignored_lines", frozenset(label_of(one) for one in self.ignored_lines))
        refused = self.folded_fields & NEVER_FOLDED
        if refused:
            raise InputError(f"folded_fields: got {min(refused)!r}, expected fields in which case says nothing")
        if "" in self.ignored_lines or not all(self.ignored_parameters):
            raise InputError("ignored_lines, ignored_parameters: got an empty name, expected names")

    @property
    def stated(self) -> dict[str, Json]:
        """The rules that are not at their default, as JSON; what a hash over the rules has to tell apart."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: _plain(value) for name, value in given.items() if value != getattr(EXACT, name)}

    def apply(self, name: str, value: Json) -> Json:
        """A field of the body in canonical form, by the rules. Messages are changed in place."""
        if name in self.folded_fields:
            return _folded(value)
        if name == "messages" and isinstance(value, list):
            for message in value:
                if isinstance(message, dict) and message.get("role") in WRITTEN:
                    self._write(message)
        return value

    def _write(self, message: dict[str, Json]) -> None:
        instructed = message["role"] in INSTRUCTED
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = self._text(content, instructed)
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                self._part(part, instructed)

    def _part(self, part: dict[str, Json], instructed: bool) -> None:
        text, image = part.get("text"), part.get("image_url")
        if part.get("type") == "text" and isinstance(text, str):
            part["text"] = self._text(text, instructed)
        if isinstance(image, dict) and isinstance(image.get("url"), str):
            image["url"] = self._address(str(image["url"]))

    def _text(self, text: str, instructed: bool) -> str:
        if self.line_ends and ("\r" in text or not text.isascii()):
            text = _LINE_END.sub("\n", text)
        if self.spaces and not _is_plain(text) and is_prose(text):
            text = _BLANK_LINES.sub("\n\n", _SPACE_BEFORE_END.sub("", _SPACES.sub(" ", text)))
        if instructed:
            text = without_values(coarse_clock(text, self.clock), self.ignored_lines)
        return text

    def _address(self, address: str) -> str:
        if self.addresses:
            address = plain_address(address)
        return without_parameters(address, self.ignored_parameters) if self.ignored_parameters else address


EXACT = Structure()
ALL = Structure(
    True, True, Clock.GONE, frozenset(TRACKING_LABELS), True, TRACKING_PARAMETERS, True
)  # what `setpoint trace info` measures drift by; for a cache most of it is too much


def _is_plain(text: str) -> bool:
    """Whether it surely has no space to lose; most texts do not, and this is soon seen."""
    return text.isascii() and not any(spaces in text for spaces in ("  ", "\t", " \n", "\n\n\n"))


def _folded(value: Json) -> Json:
    if isinstance(value, str):
        return value.translate(_CAPITALS)
    if isinstance(value, list):
        return [_folded(item) for item in value]
    return {name: _folded(item) for name, item in value.items()} if isinstance(value, dict) else value


def _plain(value: object) -> Json:
    if isinstance(value, frozenset):
        return [*sorted(value)]
    return [*value] if isinstance(value, tuple) else value  # type: ignore[return-value]
