"""How an answer lies in Redis; the same in both Redis tiers.

A line of JSON, then the body. The line is a list, the form 2 first; entries of another form are of an earlier or later
version, and as good as not there: they are a miss, and any invalidation in their partition takes them along, since
nobody knows their labels.
"""

from __future__ import annotations

import orjson

from caches.keys.request_key import RequestKey
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found, TierError

FORM = 2

# For scripts: whether an entry, or as much of it as holds the line, is of a selection as `condition` states it.
TAKEN = f"""
local function taken(entry, condition)
  local known, about = pcall(cjson.decode, string.sub(entry, 1, (string.find(entry, '\\n', 1, true) or 1) - 1))
  if not known or about[1] ~= {FORM} then return true end
  if condition.model and about[2] ~= condition.model then return false end
  if not condition.tag then return true end
  for _, tag in ipairs(about[3]) do
    if tag == condition.tag then return true end
  end
  return false
end
"""


def packed(key: RequestKey, answer: Answer) -> bytes:
    """key: of the request that stores it."""
    about = [
        *(FORM, key.model, sorted(key.tags)),
        *(answer.written_seconds, answer.ttl_seconds),
        *(answer.prompt_tokens, answer.output_tokens, answer.compute_seconds),
    ]
    return orjson.dumps(about) + b"\n" + answer.body


def unpacked(entry: bytes) -> Found | None:
    """None for an entry of another form. Raises TierError for what is no entry of ours."""
    head, _, body = entry.partition(b"\n")
    try:
        form, *about = orjson.loads(head)
        if form != FORM or not isinstance(form, int):
            return None
        _, tags, *known = about
        return Found(Answer(body, *known), tags=frozenset(tags))
    except (ValueError, TypeError) as error:
        raise TierError(f"redis: got an entry that begins with {head[:80]!r}, expected one of ours") from error


def condition(selection: Selection) -> bytes:
    """Of model and tag, as the scripts take it."""
    asked = {"model": selection.model, "tag": selection.tag}
    return orjson.dumps({name: value for name, value in asked.items() if value is not None})
