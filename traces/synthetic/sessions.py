"""Multi-turn sessions: when the turns come, which keys they are, and how their prompts grow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.per_key import Int64Array, per_key_lognormal
from traces.synthetic.arrivals import poisson_times
from traces.synthetic.catalogue import zipf_ranks
from traces.synthetic.draw import Draw
from traces.synthetic.parts import Sessions, SyntheticWorkload, Tokens
from traces.synthetic.streams import Part, Stream, generator, prompt_ids, with_generation
from traces.trace import FloatArray

_TURN_BITS = 12
_MOST_TURNS = 2**_TURN_BITS
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class _Turns:
    """One row per turn, session by session; `opening` has one row per session."""

    session: Int64Array
    number: Int64Array
    sends: Int64Array
    prompt_id: Int64Array
    opening: Int64Array


def session_requests(workload: SyntheticWorkload, sessions: Sessions, launches: FloatArray, seed: int) -> Draw:
    """All requests of sessions before the trace ends, session by session (not in order of arrival).

    launches: in seconds, ascending.
    """
    rng = generator(seed, Stream.SESSIONS)
    per_session = sessions.mean_turns * (1 + sessions.retry_probability)
    starts = poisson_times(workload.rate, sessions.share / per_session, 0, workload.span_seconds, rng)
    turns = _draw_turns(sessions, len(starts), rng)
    turn = np.repeat(np.arange(len(turns.session)), turns.sends)
    session = turns.session[turn]
    times = starts[session] + _elapsed(sessions, session, rng)
    generation = np.searchsorted(launches, times, side="right").astype(np.int64)
    first_send = np.cumsum(turns.sends) - turns.sends
    prompt = _prompt_tokens(turns, generation[first_send], workload.tokens, seed)
    first_turn = np.searchsorted(turns.session, np.arange(len(starts)))
    requests = Draw(
        arrival_seconds=times,
        key_id=with_generation(turns.prompt_id[turn], generation),
        prompt_tokens=prompt[turn].astype(np.int32),
        opening_tokens=prompt[first_turn][session].astype(np.int32),
        opening_id=with_generation(turns.opening[session], generation),
        conversation_id=with_generation(prompt_ids(Part.CONVERSATION, session), generation),
    )
    return requests.take(np.flatnonzero(times < workload.span_seconds))


def _draw_turns(sessions: Sessions, count: int, rng: np.random.Generator) -> _Turns:
    turns = np.minimum(rng.geometric(1 / sessions.mean_turns, count), _MOST_TURNS)
    session = np.repeat(np.arange(count), turns)
    number = np.arange(len(session)) - np.repeat(np.cumsum(turns) - turns, turns)
    sends = 1 + (rng.random(len(session)) < sessions.retry_probability).astype(np.int64)
    own = prompt_ids(Part.SESSION_TURN, (session << _TURN_BITS) | number)
    if sessions.num_openings:
        ranks = zipf_ranks(count, sessions.num_openings, sessions.opening_alpha, rng)
        opening = prompt_ids(Part.OPENING, ranks)
    else:
        opening = own[number == 0]
    return _Turns(session, number, sends, np.where(number == 0, opening[session], own), opening)


def _elapsed(sessions: Sessions, session: Int64Array, rng: np.random.Generator) -> FloatArray:
    """Seconds since the session's start, per request: 0 for its first, exponential pauses after that."""
    pause = rng.exponential(sessions.think_time_seconds, len(session))
    total = np.cumsum(pause)
    first = np.searchsorted(session, session)
    elapsed: FloatArray = total - total[first]
    return elapsed


def _prompt_tokens(turns: _Turns, generation: Int64Array, tokens: Tokens, seed: int) -> Int64Array:
    """Per turn: the text of all turns so far and the answers to the ones before, at most an int32.

    generation: per turn, when it was first sent; it decides the answer.
    """
    added = per_key_lognormal(
        turns.prompt_id, tokens.prompt_median, tokens.prompt_sigma, seed, Stream.PROMPT_TOKENS
    ).astype(np.int64)
    answers = per_key_lognormal(
        with_generation(turns.prompt_id, generation),
        tokens.output_median,
        tokens.output_sigma,
        seed,
        Stream.OUTPUT_TOKENS,
    )
    total = np.cumsum(added + answers)
    first = np.searchsorted(turns.session, turns.session)
    before_session = total[first] - added[first] - answers[first]
    prompt: Int64Array = np.minimum(total - before_session - answers, _INT32_MAX)
    return prompt
