"""How an answer lies in Redis; the same in both Redis tiers."""

from __future__ import annotations

import orjson

from caches.tiers.tier import Answer, TierError


def packed(answer: Answer) -> bytes:
    """A line of JSON, then the body."""
    about = [
        answer.written_seconds,
        answer.ttl_seconds,
        answer.prompt_tokens,
        answer.output_tokens,
        answer.compute_seconds,
    ]
    return orjson.dumps(about) + b"\n" + answer.body


def unpacked(entry: bytes) -> Answer:
    head, _, body = entry.partition(b"\n")
    try:
        written, ttl, prompt, output, compute = orjson.loads(head)
    except (ValueError, TypeError) as error:
        raise TierError(f"redis: got an entry that begins with {head[:80]!r}, expected one of ours") from error
    return Answer(body, written, ttl, prompt, output, compute)
