"""Questions for the stack: real ones that come back to the letter, and rewordings of them that never do."""

from __future__ import annotations

from collections.abc import Sequence

import fow_cache
import numpy as np

from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.partitions import partition_of
from caches.keys.request_key import RequestKey

PARTITION = partition_of("bench", "shop")
ALPHA = 1.0  # of the questions' popularity
SYSTEM = "You are the assistant of a shop. Answer in one paragraph."
OPENERS = (
    *("Hi, ", "Hello, ", "Hey, ", "Hi there, ", "Good morning, ", "Please, ", "Quick question: ", "So, ", "Well, "),
    *("Sorry, ", "Okay, ", "Excuse me, ", "One question: ", "Hello again, ", "Dear team, ", "Right, "),
)
CLOSERS = (
    *("", " Thanks", " Thanks!", " Thank you", " Thank you!", " Please", " Cheers", " Many thanks", " Thanks a lot"),
    *(" Much appreciated", " Thanks in advance", " Thank you very much", " Kind regards", " Best wishes"),
)


def questions() -> list[str]:
    """The different questions of fow-cache, in its order."""
    pairs = fow_cache.load_questions()
    return list(dict.fromkeys(pair[side] for pair in pairs for side in "ab"))


def reworded(question: str, number: int) -> str:
    """The number-th way to say it: the same words between a greeting and a thank-you. The first 224 all differ."""
    opener, closer = OPENERS[number % len(OPENERS)], CLOSERS[number // len(OPENERS) % len(CLOSERS)]
    return f"{opener}{question[:1].lower()}{question[1:]}{closer}"


def asked(known: Sequence[str], requests: int, exact_share: float, seed: int = 0) -> list[str]:
    """A share of them known questions, by Zipf's law in a seeded order; the rest rewordings, none of them twice."""
    random = np.random.default_rng(seed)
    share = np.arange(1, len(known) + 1) ** -ALPHA
    popular = random.permutation(len(known))[random.choice(len(known), requests, p=share / share.sum())]
    exact = random.random(requests) < exact_share
    texts, ways = [], [0] * len(known)
    turn = 0
    for one, again in zip(popular.tolist(), exact.tolist(), strict=True):
        if again:
            texts.append(known[one])
            continue
        of = turn % len(known)
        texts.append(reworded(known[of], ways[of]))
        ways[of], turn = ways[of] + 1, turn + 1
    return texts


def body_of(question: str) -> dict[str, object]:
    """A request as a client sends it."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return {"model": "m", "temperature": 0, "max_tokens": 300, "messages": messages}


def keys_of(texts: Sequence[str]) -> list[RequestKey]:
    """Equal texts share one."""
    made = {text: key_of(text) for text in dict.fromkeys(texts)}
    return [made[text] for text in texts]


def key_of(question: str) -> RequestKey:
    return request_key(Endpoint.CHAT, body_of(question), PARTITION)
