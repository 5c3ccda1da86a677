"""A user's patterns from the gateway's memory are those of `pidgate who`."""

from __future__ import annotations

import asyncio

from pidgate.events.redaction import UserNames
from pidgate.events.writing import to_json
from pidgate.gateway.present.patterns import KEPT_MS, Patterns
from pidgate.gateway.state.recent_events import RecentEvents
from tests.support.who_events import START_MS, Client, Stream

EVERY_MS = 4_000
STARTS = 100
END_MS = START_MS + STARTS * EVERY_MS
HOSTILE = '"mallory"\u202e'


def remembered(*users: str, starts: int = STARTS) -> RecentEvents:
    """Users whose processes crash and are started again."""
    stream = Stream()
    for start in range(starts):
        for user in users:
            at_ms = START_MS + start * EVERY_MS
            stream.producer(Client(user=user), at_ms, life_ms=EVERY_MS // 3, requests=5)
    recent = RecentEvents(START_MS)
    for event in stream.events():
        recent.add(to_json(event), event.wall_time_ms)
    return recent


def test_a_restart_loop_is_named_with_its_remedy_and_for_its_user_alone() -> None:
    patterns = Patterns(remembered("alice", HOSTILE), UserNames())
    for user in ("alice", HOSTILE):
        (found,) = asyncio.run(patterns.of(user, END_MS))
        assert found.kind == "restart_loop"
        assert f"{STARTS} starts, one after the other, every 4 s" in found.text
        assert found.remedy.startswith("Find out why the process ends")
    assert asyncio.run(patterns.of("mallory", END_MS)) == []


def test_what_was_found_is_kept_for_a_while() -> None:
    recent = remembered("alice", starts=0)
    patterns = Patterns(recent, UserNames())
    assert asyncio.run(patterns.of("alice", END_MS)) == []
    for at_ms, value in remembered("alice").since(0):
        recent.add(value, at_ms)
    assert asyncio.run(patterns.of("alice", END_MS)) == []
    assert asyncio.run(patterns.of("alice", END_MS + KEPT_MS)) != []


def test_the_event_loop_goes_on_meanwhile() -> None:
    patterns = Patterns(remembered("alice", starts=400), UserNames())

    async def turns() -> int:
        finding = asyncio.ensure_future(patterns.of("alice", START_MS + 400 * EVERY_MS))
        count = 0
        while not finding.done():
            await asyncio.sleep(0)
            count += 1
        return count

    assert asyncio.run(turns()) > 50
