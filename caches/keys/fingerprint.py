"""From the body of an OpenAI-style request to its key. Pure: no clock, no randomness, and nothing given is changed.

With `form` for the 32 bytes of the rules and the version of the canonical form:

    context     = SHA-256(form, JSON of [endpoint, fields])    the text of the question, if there is one, replaced by 0
    fingerprint = SHA-256(context, 0)                          where there is no question
    fingerprint = SHA-256(context, 1, question in UTF-8)       where there is one

`form` and `context` have a fixed length, so where each part ends is never a matter of what it holds.
"""

from __future__ import annotations

from collections.abc import Set
from hashlib import sha256

from caches.errors import InputError
from caches.keys.canonical import Json, canonical, encode, nfc, refused, same
from caches.keys.fields import CHOICES, NULL_IS_ABSENT, TEXT_IS_A_LIST_OF_ONE, Endpoint, defaults_of
from caches.keys.partitions import checked
from caches.keys.request_key import Partition, RequestKey
from caches.keys.rules import KeyRules

TRIMMED_ROLES = frozenset({"system", "developer", "user"})  # not the assistant: it may be asked to go on from a space
CONTENT = (str, list, type(None))
NOT_A_QUESTION = ("n", "logprobs")  # several answers, or probabilities of one: not those of a question much like it


def request_key(
    endpoint: Endpoint,
    body: object,
    partition: Partition,
    rules: KeyRules = KeyRules(),
    tags: Set[str] = frozenset(),
) -> RequestKey:
    """The key of a request: equal for requests that must get the same answer, different for all others.

    body: parsed JSON. partition: from who asks, never from the body. Raises InputError, naming the field, where the
    body is no request. Whether the answer may be kept at all is for `why_not_cached`.
    """
    checked(partition)
    fields = meaning(endpoint, body, rules)
    question = _question(endpoint, fields)
    context = _digest(rules.form, encode([endpoint.value, _without_question(fields, question)]))
    ending = b"\x00" if question is None else b"\x01" + _utf8(question)
    return RequestKey(
        partition=partition,
        fingerprint=_digest(context, ending),
        context=context,
        question=question,
        model=str(fields["model"]),
        tags=frozenset(tags),
    )


def meaning(endpoint: Endpoint, body: object, rules: KeyRules = KeyRules()) -> dict[str, Json]:
    """The fields of a body that count, each in its canonical form; defaults and what is left out are gone."""
    if not isinstance(body, dict):
        raise refused("body", body, "a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise refused("model", body.get("model"), "the name of a model")
    _check_input(endpoint, body)
    defaults = defaults_of(endpoint, rules.openai_defaults)
    fields: dict[str, Json] = {}
    for given, content in body.items():
        if given in rules.dropped or (content is None and given in NULL_IS_ABSENT):
            continue
        name, value = _field(given, content, rules)
        if name in fields:
            raise refused("body", body, "names of fields that differ by more than how their accents are encoded")
        if name not in defaults or not same(value, defaults[name]):
            fields[name] = value
    for choice, among in CHOICES:
        if fields.get(choice) == ("auto" if fields.get(among) else "none"):
            del fields[choice]
    return fields


def _check_input(endpoint: Endpoint, body: dict[str, object]) -> None:
    if endpoint is not Endpoint.CHAT:
        name = "input" if endpoint is Endpoint.EMBEDDINGS else "prompt"
        if not isinstance(body.get(name), (str, list)):
            raise refused(name, body.get(name), "text, a list of texts, or token numbers")
        return
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise refused("messages", messages, "a list of at least one message")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise refused(f"messages[{place}]", message, "an object")
        if not isinstance(message.get("role"), str):
            raise refused(f"messages[{place}].role", message.get("role"), "a role such as 'user'")
        if not isinstance(message.get("content"), CONTENT):
            raise refused(f"messages[{place}].content", message["content"], "text or a list of parts")


def _field(name: object, value: object, rules: KeyRules) -> tuple[str, Json]:
    if not isinstance(name, str):
        raise refused("a key in body", name, "text")
    done = canonical(value, name)
    if name == "messages" and isinstance(done, list):
        for message in done:
            if isinstance(message, dict):  # as checked
                _settle(message, rules.trim_text)
    elif name in TEXT_IS_A_LIST_OF_ONE and isinstance(done, str):
        done = [done]
    return nfc(name), rules.structure.apply(name, done) if rules.rewrites else done


def _settle(message: dict[str, Json], trim: bool) -> None:
    """In place: content that is one part of text becomes that text, and loses its ends where the rules say so."""
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1:
        part = content[0]
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text":
            content = part["text"]
    if isinstance(content, str):
        message["content"] = content.strip() if trim and message["role"] in TRIMMED_ROLES else content


def _question(endpoint: Endpoint, fields: dict[str, Json]) -> str | None:
    """The text of the last message, where a question much like it could have the same answer."""
    messages = fields.get("messages")
    if (
        endpoint is not Endpoint.CHAT
        or not isinstance(messages, list)
        or any(name in fields for name in NOT_A_QUESTION)
    ):
        return None
    last = messages[-1]
    if not isinstance(last, dict) or last["role"] != "user":
        return None
    content = last.get("content")
    return content if isinstance(content, str) and content.strip() else None


def _without_question(fields: dict[str, Json], question: str | None) -> dict[str, Json]:
    messages = fields.get("messages")
    if question is None or not isinstance(messages, list) or not isinstance(messages[-1], dict):
        return fields
    # 0 stands for the question: no message has a number as content
    return fields | {"messages": [*messages[:-1], messages[-1] | {"content": 0}]}


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"messages: got text that is not Unicode ({error.reason}), expected UTF-8") from error


def _digest(first: bytes, rest: bytes) -> bytes:
    return sha256(first + rest).digest()
