"""What is answered in place of the backend: another model's answer, or a text that says that there is none."""

from __future__ import annotations

from typing import Any

import orjson

from api.gateway.asked import Asked
from api.gateway.errors import Headers
from api.gateway.upstream import Upstream
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.rules import KeyRules
from caches.tiers.tier import Answer

TEMPLATE_MODEL = "setpoint-template"


def asked_of_fallback(asked: Asked, model: str, label: str, rules: KeyRules) -> Asked | None:
    """The same request to another model, under a key of its own. None where that makes no sense: vectors of another
    model lie in another space."""
    if asked.endpoint is Endpoint.EMBEDDINGS or asked.body.get("model") == label:
        return None
    body = {**asked.body, "model": model}
    key = request_key(asked.endpoint, {**body, "model": label}, asked.key.partition, rules, asked.wishes.tags)
    return Asked(asked.endpoint, orjson.dumps(body), body, key, asked.wishes)


def headers_to_another(headers: Headers, upstream: Upstream) -> Headers:
    """A client's key is for the backend that it knows, so it goes to no other."""
    return upstream.request_headers([one for one in headers if one[0] != b"authorization"])


def template_answer(endpoint: Endpoint, body: dict[str, Any], text: str, now_seconds: float) -> Answer | None:
    """Complete, as a model's would be. None where a text is of no use: for vectors, for JSON, for a call of a tool."""
    form = body.get("response_format")
    wants_text = not isinstance(form, dict) or form.get("type") == "text"
    if endpoint is Endpoint.EMBEDDINGS or not wants_text or body.get("tool_choice") not in (None, "auto", "none"):
        return None
    if endpoint is Endpoint.CHAT:
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text, "refusal": None}}
        kind, name = "chat.completion", "chatcmpl-setpoint"
    else:
        said, kind, name = {"text": text}, "text_completion", "cmpl-setpoint"
    answer = {
        "id": name,
        "object": kind,
        "created": int(now_seconds),
        "model": TEMPLATE_MODEL,
        "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    return Answer(orjson.dumps(answer), now_seconds)


def text_of(body: dict[str, Any]) -> str:
    """All that a request says: its messages, prompt or input, joined."""
    return "\n".join(_texts([body.get("messages"), body.get("prompt"), body.get("input")]))


def tokens_of(body: dict[str, Any], body_bytes: int, bytes_per_token: float, output_tokens: int) -> tuple[float, float]:
    """Of the prompt and of all answers together, as estimated before any is there."""
    stated = next((body[name] for name in ("max_completion_tokens", "max_tokens") if _is_count(body.get(name))), None)
    answers = body["n"] if _is_count(body.get("n")) else 1
    each = 0 if "input" in body else output_tokens if stated is None else stated
    return body_bytes / bytes_per_token, float(each * answers)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        return _texts(value.get("content")) + _texts(value.get("text"))
    return []


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
