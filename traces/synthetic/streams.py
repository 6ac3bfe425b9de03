"""Where the parts' random numbers come from, and the ids of what they make.

Each part draws from a stream of its own, named by its number and not by the order of use: adding, removing or
changing a part leaves the draws of all others as they are. The numbers are part of what a seed means.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from traces.per_key import Int64Array

_GENERATION_SHIFT = 40
_INSTANCE_SHIFT = 49
_PART_SHIFT = 58


class Stream(IntEnum):
    """What is drawn."""

    ARRIVALS = 1
    RANKS = 2
    DRIFT = 3
    FLASH_CROWD = 4
    SCAN = 5
    SESSIONS = 6
    SIZES = 7
    PROMPT_TOKENS = 8
    OUTPUT_TOKENS = 9


class Part(IntEnum):
    """Who made a prompt, or, for CONVERSATION, the blocks of one."""

    CATALOGUE = 0
    FLASH_CROWD = 1
    SCAN = 2
    SESSION_TURN = 3
    OPENING = 4
    CONVERSATION = 5


def generator(seed: int, stream: Stream, instance: int = 0) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, instance)))


def prompt_ids(part: Part, local: Int64Array, instance: int = 0) -> Int64Array:
    """Ids of prompts, which differ wherever part, instance or local number do.

    From the top: 5 bits part, 9 bits instance, 9 bits left for the generation, 40 bits local number.
    """
    return np.int64((part << _PART_SHIFT) | (instance << _INSTANCE_SHIFT)) | local


def with_generation(prompts: Int64Array, generation: Int64Array) -> Int64Array:
    """Ids of keys: a prompt as the model sees it after `generation` launches."""
    return prompts | (generation << _GENERATION_SHIFT)
