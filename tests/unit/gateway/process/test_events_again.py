"""Events under way to a state owner that dies reach the next one, which remembers what they admitted, uncharged.

A real state owner and a real worker, on one event loop. Each rule has a mutant that breaks it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pidgate.events.definitions import TransactionalIdEvent
from pidgate.events.writing import to_json
from pidgate.gateway.process import wire, workers
from pidgate.gateway.process.event_outbox import EventOutbox
from pidgate.gateway.process.wire import Kind
from pidgate.gateway.process.workers import Workers, WorkerSession
from pidgate.gateway.state.admitted import admitted_in
from pidgate.gateway.state.event_log import EventLog
from pidgate.quota.state import PassedId
from tests.support.loopback import run, until
from tests.unit.gateway.process.test_workers_anew import USER, Site, lasts, site_at
from tests.unit.gateway.state.test_decision_scan import decision

RATE = 5
ADMITTED = to_json(
    decision(user=USER, producer_id=7, decision="admit", reason="first_seen", transactional=False)
)


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What all state owners have written to the topic, which the site does without."""
    values: list[bytes] = []
    publish = EventLog.publish

    def noted(log: EventLog, key: str, value: bytes) -> None:
        values.append(value)
        publish(log, key, value)

    monkeypatch.setattr(EventLog, "publish", noted)
    return values


async def _admit_at_one_who_dies(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an event to a state owner that is gone before it reads; the next one remembers nothing of it."""

    def dies(_: Workers, session: WorkerSession, message: wire.Message) -> None:
        assert session._transport is not None
        session._transport.abort()

    (before,) = site.sessions
    with monkeypatch.context() as patched:
        patched.setattr(Workers, "take", dies)
        site.worker._link.publish(USER, ADMITTED)
        await until(lambda: before._transport is None)
        # A worker that came back meanwhile is not heard either: a real process would be gone.
        await site.owner.drain()
        for session in site.sessions:
            dies(site.workers, session, wire.Message(Kind.BYE, None))
    await site.start_owner(2)
    await until(lambda: site.sessions)


def _tokens(site: Site) -> float | None:
    return site.owner._manager.state.status(USER, site.now_ms()).tokens


def test_what_a_state_owner_admitted_the_next_one_remembers_and_does_not_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _admit_at_one_who_dies(site, monkeypatch)
            await until(lambda: site.knows(7))
            assert published == [ADMITTED]
            assert _tokens(site) == RATE, "the first one has charged it"

    run(scenario())


def test_mutant_what_is_written_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    """The topic lacks an event, and the id is charged again when it comes."""
    connected = EventOutbox.connected

    def forgets(outbox: EventOutbox) -> None:
        outbox._written.clear()
        connected(outbox)

    monkeypatch.setattr(EventOutbox, "connected", forgets)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _admit_at_one_who_dies(site, monkeypatch)
            assert await lasts(lambda: not site.knows(7) and not published)

    run(scenario())


def test_mutant_it_is_written_to_the_topic_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    monkeypatch.setattr(workers, "admitted_in", lambda _value, _user_of: None)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _admit_at_one_who_dies(site, monkeypatch)
            await until(lambda: published)
            assert await lasts(lambda: not site.knows(7))

    run(scenario())


def test_an_event_is_kept_until_the_topic_has_it_and_no_longer(
    tmp_path: Path, published: list[bytes]
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            events = site.worker._link.events
            site.worker._link.publish(USER, ADMITTED)
            await until(lambda: published)
            assert len(events) == 1, "taken is not yet safe"
            began_s = asyncio.get_running_loop().time()
            await until(lambda: not len(events))
            assert asyncio.get_running_loop().time() - began_s > workers.TICK_S / 2
            (session,) = site.sessions
            assert session._transport is not None
            session._transport.abort()
            await until(lambda: session not in site.sessions and site.sessions)
            assert await lasts(lambda: published == [ADMITTED])

    run(scenario())


def test_mutant_what_is_taken_counts_as_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    """A state owner that is killed has taken it, and not yet written it anywhere."""
    take = Workers.take

    def at_once(owner: Workers, session: WorkerSession, message: wire.Message) -> None:
        take(owner, session, message)
        session.send(Kind.EVENTS_SAFE, session.events_taken)

    monkeypatch.setattr(Workers, "take", at_once)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            began_s = asyncio.get_running_loop().time()
            site.worker._link.publish(USER, ADMITTED)
            await until(lambda: published and not len(site.worker._link.events))
            assert asyncio.get_running_loop().time() - began_s < workers.TICK_S / 2

    run(scenario())


def test_what_events_admit() -> None:
    assert admitted_in(ADMITTED, str.upper) == PassedId(USER.upper(), 7, False)
    refused = to_json(decision(user=USER, producer_id=7, decision="refuse", reason="deadline"))
    assert admitted_in(refused, str) is None
    assert admitted_in(b"{}", str) is None
    named = TransactionalIdEvent(
        cluster="c", gateway_id="gw", incarnation="run.1", seq=1, wall_time_ms=1, decision_time_ms=1, user=USER,
        transactional_id_hash="h:00000000000000ff", reason="first_seen", quota_version=1,
    )  # fmt: skip
    assert admitted_in(to_json(named), str) == PassedId(USER, 255, True, is_transactional_id=True)
    for unknown in ("h2:zz", "h:" + "f" * 17):
        assert admitted_in(to_json(replace(named, transactional_id_hash=unknown)), str) is None
    assert admitted_in(b'{"schema_version":1,"type":"alive"', str) is None
