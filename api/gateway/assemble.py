"""From the chunks of a stream to the answer as it would have come whole."""

from __future__ import annotations

from typing import Any

from caches.keys.fields import Endpoint

OBJECTS = {Endpoint.CHAT: "chat.completion", Endpoint.COMPLETIONS: "text_completion"}
# Stated once or anew each time, and never in pieces.
STATED = frozenset({"id", "type", "role", "name", "object"})


class Assembly:
    """Chunks in, one answer out. Fields that are not known here are joined by the same rules: texts and lists are
    appended, objects merged, of anything else the last counts."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: Any = None

    def add(self, chunk: dict[str, Any]) -> None:
        for name, value in chunk.items():
            if name == "usage":
                self._usage = value or self._usage
            elif name == "choices":
                for entry in value or ():
                    self._add_choice(entry)
            elif self._head.get(name) is None:
                self._head[name] = value

    @property
    def complete(self) -> bool:
        """Whether each choice says why it ends."""
        return bool(self._choices) and all(choice.get("finish_reason") for choice in self._choices.values())

    def whole(self) -> dict[str, Any]:
        choices = [self._choice(self._choices[index]) for index in sorted(self._choices)]
        answer = {**self._head, "object": OBJECTS[self._endpoint], "choices": choices}
        return answer if self._usage is None else {**answer, "usage": self._usage}

    def _add_choice(self, entry: dict[str, Any]) -> None:
        index = entry.get("index") or 0
        kept = self._choices.setdefault(index, {"index": index})
        merge(kept, {name: value for name, value in entry.items() if name not in {"index", "finish_reason"}})
        kept["finish_reason"] = entry.get("finish_reason") or kept.get("finish_reason")

    def _choice(self, kept: dict[str, Any]) -> dict[str, Any]:
        if self._endpoint is not Endpoint.CHAT:
            return kept
        message = {"role": "assistant", "content": None, "refusal": None, **kept.get("delta", {})}
        calls = message.get("tool_calls")
        if calls:
            message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
            message["content"] = message["content"] or None  # an empty opening is no content beside a call
        rest = {name: value for name, value in kept.items() if name not in {"index", "delta", "finish_reason"}}
        ending = {"finish_reason": kept["finish_reason"]}
        return {"index": kept["index"], "message": message, "logprobs": None, **rest, **ending}


def merge(kept: dict[str, Any], more: dict[str, Any]) -> None:
    """In place. What is null changes nothing that is there."""
    for name, value in more.items():
        there = kept.get(name)
        if there is None:
            kept[name] = _own(value)
        elif isinstance(there, str) and isinstance(value, str):
            kept[name] = (value or there) if name in STATED else there + value
        elif isinstance(there, dict) and isinstance(value, dict):
            merge(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            _extend(there, value)
        elif value is not None:
            kept[name] = value


def _own(value: Any) -> Any:
    """Lists and objects that `merge` may change, with those that belong to one index joined."""
    if isinstance(value, dict):
        own: dict[str, Any] = {}
        merge(own, value)
        return own
    if isinstance(value, list):
        items: list[Any] = []
        _extend(items, value)
        return items
    return value


def _extend(there: list[Any], more: list[Any]) -> None:
    """Tool calls come in parts, each with the index of its call; all else is appended."""
    for item in more:
        index = _index(item)
        same = next((one for one in there if index is not None and _index(one) == index), None)
        if same is None:
            there.append(_own(item))
        else:
            merge(same, item)


def _index(item: Any) -> Any:
    return item.get("index") if isinstance(item, dict) else None
