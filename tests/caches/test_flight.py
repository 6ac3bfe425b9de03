"""Requests that share one call: who leads, who follows, and what becomes of them."""

from __future__ import annotations

import asyncio

import pytest

from caches.flight import Flight, Flights, LeaderGone


async def test_the_first_leads_the_others_follow_until_it_has_landed() -> None:
    flights: Flights[str] = Flights()
    first, leads = flights.join(b"a")
    second, follows = flights.join(b"a")
    other, too = flights.join(b"b")
    assert (leads, follows, too) == (True, False, True)
    assert second is first is not other
    assert (first.followers, len(flights)) == (1, 2)
    waiting = asyncio.ensure_future(second.result())
    first.finish("answer")
    flights.land(b"a", first)
    assert await waiting == "answer"
    assert flights.join(b"a")[1]


async def test_pieces_come_to_all_from_the_beginning() -> None:
    flight: Flight[str] = Flight()
    flight.publish(b"1")

    async def collect() -> list[bytes]:
        return [piece async for some in flight.pieces() for piece in some]

    early = asyncio.ensure_future(collect())
    await asyncio.sleep(0)
    flight.publish(b"2")
    late = asyncio.ensure_future(collect())
    await asyncio.sleep(0)
    flight.publish(b"3")
    flight.finish("done")
    assert await early == await late == [b"1", b"2", b"3"]
    assert await collect() == [b"1", b"2", b"3"]


async def test_an_error_reaches_all_that_follow_after_the_pieces() -> None:
    flight: Flight[str] = Flight()
    flight.publish(b"1")
    flight.fail(ValueError("no"))
    pieces = flight.pieces()
    assert await anext(pieces) == [b"1"]
    with pytest.raises(ValueError, match="no"):
        await anext(pieces)
    with pytest.raises(ValueError, match="no"):
        await flight.result()


async def test_a_leader_that_leaves_says_so_and_what_ended_stays_ended() -> None:
    flight: Flight[str] = Flight()
    flight.leave()
    with pytest.raises(LeaderGone):
        await flight.result()
    ended: Flight[str] = Flight()
    ended.finish("first")
    ended.leave()
    ended.finish("second")
    assert await ended.result() == "first"


async def test_a_follower_that_is_cancelled_takes_nobody_along() -> None:
    flight: Flight[str] = Flight()
    one, other = asyncio.ensure_future(flight.result()), asyncio.ensure_future(flight.result())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    flight.finish("answer")
    assert await other == "answer"
