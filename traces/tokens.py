"""Token counts for traces that have none, and sizes that follow from tokens."""

from __future__ import annotations

import dataclasses

import numpy as np

from caches.errors import InputError
from traces.trace import Trace


def assume_tokens(trace: Trace, prompt_tokens: int = 1020, bytes_per_token: float = 4.0) -> Trace:
    """The trace with both token columns; one that it has already is kept.

    prompt_tokens: the same for every request; the default is the median of ContextTokens in the Azure 2023
    conversation trace. Output tokens are max(1, round(size_bytes / bytes_per_token)). Each modelled column
    adds a sentence to the assumptions. The digest stays that of the recorded traffic.
    """
    if prompt_tokens < 1:
        raise InputError(f"prompt tokens: got {prompt_tokens}, expected at least 1")
    if not 0 < bytes_per_token < float("inf"):
        raise InputError(f"bytes per token: got {bytes_per_token}, expected a number above 0")
    added = []
    prompt, output = trace.prompt_tokens, trace.output_tokens
    if prompt is None:
        prompt = np.full(len(trace), prompt_tokens, dtype=np.int32)
        added.append(f"Every prompt is taken to have {prompt_tokens} tokens; the source has no counts.")
    if output is None:
        output = np.maximum(1, np.rint(trace.size_bytes / bytes_per_token)).astype(np.int32)
        added.append(f"Output tokens are modelled as size / {bytes_per_token:g}; the source has no counts.")
    if not added:
        return trace
    info = dataclasses.replace(trace.info, assumptions=(*trace.info.assumptions, *added))
    return dataclasses.replace(trace, info=info, prompt_tokens=prompt, output_tokens=output)


def sized_by_tokens(trace: Trace, envelope_bytes: int, bytes_per_token: float) -> Trace:
    """The trace with size_bytes = envelope_bytes + bytes_per_token * output_tokens, in place of those recorded.

    What an API answers is its text and a document around it, whatever the source of the keys was a cache of. It says so
    in the assumptions. Needs output tokens, see `assume_tokens`; raises InputError without them.
    """
    if trace.output_tokens is None:
        raise InputError(f"trace {trace.info.name}: got no output tokens, expected them, for sizes follow from them")
    size = np.rint(envelope_bytes + bytes_per_token * trace.output_tokens.astype(np.float64)).astype(np.int32)
    told = f"Sizes are modelled as {envelope_bytes} bytes and {bytes_per_token:g} for each output token."
    info = dataclasses.replace(trace.info, assumptions=(*trace.info.assumptions, told))
    return dataclasses.replace(trace, info=info, size_bytes=size)
