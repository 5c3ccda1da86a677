"""State between state owner and worker is never left out: whoever lags begins anew, and what was unsent leaves later.

A real state owner and a real worker, on one event loop. Each rule has a mutant that breaks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import yaml

from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.process import link, wire, workers
from pidgate.gateway.process import worker as worker_module
from pidgate.gateway.process.link import StateOwnerLink
from pidgate.gateway.process.message_reader import MESSAGES_PER_TURN
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.process.wire import LAST_EVENTS_S, Kind
from pidgate.gateway.process.worker import Worker
from pidgate.gateway.process.workers import Workers, WorkerSession
from pidgate.gateway.state.event_log import EventLog
from pidgate.protocol.headers import RequestHead
from pidgate.quota.interim import InterimState
from pidgate.quota.layered_filter import Sighting
from pidgate.quota.settings import Mode
from pidgate.quota.state import AskedId, PassedId, PendingDecision, Question
from pidgate.quota.verdicts import Forward, Session
from tests.support import raw
from tests.support.loopback import HOST, PORTS, Peer, ScriptedBroker, run, until
from tools.sandbox.ports import free_block, give_back

USER = "alice"
LITTLE_BYTES = 64 * 1024
MANY_IDS = 20_000
"""More of their messages than the socket's buffers and LITTLE_BYTES hold."""


class Site:
    """A state owner, which may be replaced, and its only worker; where there is a state directory, events are made."""

    def __init__(self, broker: str, socket_path: Path, state_dir: Path | None = None) -> None:
        self._first_port = first = free_block(PORTS)
        config = {
            "cluster": {"bootstrap_servers": [broker]},
            "listeners": [
                {
                    "bind": f"{HOST}:{first + 1}",
                    "node_ports": {"first": first + 2},
                    "authentication": "none",
                }
            ],
            "admin": {"bind": f"{HOST}:{first}"},
            "events": {"enabled": False},
            "state_dir": None if state_dir is None else str(state_dir),
            "quotas": {
                "mode": "enforce",
                "default": {"producer_ids_rate": 5},
                "producer_ids": {"grace": "0s"},
            },
        }
        self._settings: Settings = parse(yaml.safe_dump(config))
        self._path = str(socket_path)

    async def start(self) -> None:
        await self.start_owner(1)
        self.worker = Worker(self._settings, 1, self._path, "run.1")
        await self.worker.start()
        await self.settled()

    async def start_owner(self, number: int, *, passed_before: int | None = None) -> None:
        self.owner = Gateway(self._settings, incarnation=f"run.0.{number}", socket_path=self._path)
        if passed_before is not None:
            self.owner._manager.state.insert_uncharged(USER, passed_before, self.now_ms())
        await self.owner.start()

    async def settled(self) -> None:
        """Wait until the worker is connected, and has what the state owner sends at the beginning."""
        await until(lambda: self.sessions and not self.worker._is_new_owner)

    async def stop(self) -> None:
        await self.worker.drain()
        await self.owner.drain()
        give_back(self._first_port, PORTS)

    @property
    def workers(self) -> Workers:
        assert isinstance(self.owner.traffic, Workers)
        return self.owner.traffic

    @property
    def sessions(self) -> list[WorkerSession]:
        return [session for session in self.workers._sessions if session._transport is not None]

    @property
    def transport(self) -> asyncio.Transport:
        transport = self.worker._link._transport
        assert transport is not None
        return transport

    def now_ms(self) -> int:
        return self.worker._traffic.shared.now_ms()

    def knows(self, producer_id: int) -> bool:
        """Whether the state owner has admitted the id."""
        live = self.owner._manager._quota.table.live(USER, self.now_ms())
        sighting = live.filter.find(live.filter.hashed(producer_id), self.now_ms())
        return sighting is not Sighting.UNSEEN


@asynccontextmanager
async def site_at(path: Path, state_dir: Path | None = None) -> AsyncIterator[Site]:
    async with ScriptedBroker() as broker:
        site = Site(broker.address, path / "socket", state_dir)
        await site.start()
        try:
            yield site
        finally:
            await site.stop()


async def lasts(holds: Callable[[], bool]) -> bool:
    """Whether it is still so after a second: two reports of the worker."""
    for _ in range(25):
        if not holds():
            return False
        await asyncio.sleep(0.05)
    return True


# A worker that lags


async def _lag_then_read(site: Site) -> None:
    """Let much be sent that the worker does not read, and then, in an emergency, that all is to be observed."""
    site.transport.pause_reading()
    for producer_id in range(MANY_IDS):
        site.workers.refused_elsewhere(USER, producer_id, site.now_ms())
        if producer_id % 500 == 0:
            await asyncio.sleep(0)
    site.workers.set_quotas(replace(site.workers._quotas, mode=Mode.OBSERVE))
    await asyncio.sleep(0.05)
    site.transport.resume_reading()


def _mode(site: Site) -> Mode:
    return site.worker._traffic.quotas.mode


def test_a_worker_that_lags_is_cut_off_and_gets_all_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_UNREAD_BYTES", LITTLE_BYTES)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            (before,) = site.sessions
            await _lag_then_read(site)
            await until(lambda: _mode(site) is Mode.OBSERVE)
            await until(lambda: site.sessions and site.sessions != [before])
            await site.settled()
            await until(lambda: (USER, MANY_IDS - 1) in site.worker._traffic.watched_ids())

    run(scenario())


def test_mutant_what_finds_no_room_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emergency does not reach the worker."""
    monkeypatch.setattr(workers, "MOST_UNREAD_BYTES", LITTLE_BYTES)

    def send(session: WorkerSession, kind: Kind, body: object) -> None:
        transport = session._transport
        if transport is not None and transport.get_write_buffer_size() < LITTLE_BYTES:
            transport.write(wire.encoded(kind, body))

    monkeypatch.setattr(WorkerSession, "send", send)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _lag_then_read(site)
            assert await lasts(lambda: _mode(site) is Mode.ENFORCE)

    run(scenario())


def test_mutant_the_beginning_has_to_find_room_like_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off each time before it has begun, the worker never learns what was refused."""
    monkeypatch.setattr(workers, "MOST_UNREAD_BYTES", LITTLE_BYTES)
    connection_made = WorkerSession.connection_made

    def limited(session: WorkerSession, transport: asyncio.BaseTransport) -> None:
        connection_made(session, transport)
        session.may_lag_from_here()

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            monkeypatch.setattr(WorkerSession, "connection_made", limited)
            await _lag_then_read(site)
            assert await lasts(lambda: (USER, MANY_IDS - 1) not in site.worker._traffic.watched_ids())

    run(scenario())


# Ids that passed unsent


async def _pass_unsent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an id pass while nothing more can be written to the state owner; then it reads again."""
    with monkeypatch.context() as patched:
        patched.setattr(link, "MOST_UNSENT_BYTES", 0)
        site.worker._link.insert_uncharged(USER, 7, site.now_ms())
        await asyncio.sleep(0.05)
        assert not site.knows(7)


def test_ids_that_passed_unsent_leave_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _pass_unsent(site, monkeypatch)
            site.worker._link.insert_uncharged(USER, 8, site.now_ms())
            await until(lambda: site.knows(7) and site.knows(8))

    run(scenario())


def test_they_leave_within_a_second_when_nothing_else_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _pass_unsent(site, monkeypatch)
            await until(lambda: site.knows(7))

    run(scenario())


async def _most_inserted_by_a_message(site: Site, monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Let so many ids pass unsent; return how many of them came in one message, when all have come."""
    taken: list[int] = []
    take = Workers.take

    def noted(workers: Workers, session: WorkerSession, message: wire.Message) -> None:
        if message.kind is Kind.UNCHARGED:
            taken.append(len(message.body[1]))
        take(workers, session, message)

    monkeypatch.setattr(Workers, "take", noted)
    with monkeypatch.context() as patched:
        patched.setattr(link, "MOST_UNSENT_BYTES", 0)
        for producer_id in range(count):
            site.worker._link.insert_uncharged(USER, producer_id, site.now_ms())
    await until(lambda: not site.worker._link._passed)
    assert all(site.knows(producer_id) for producer_id in range(count))
    assert sum(taken) == count, "each once"
    return max(taken)


def test_many_ids_that_passed_leave_in_portions_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of the state owner handles MESSAGES_PER_TURN messages, and may take 10 ms: some 1,500 ids."""

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            most = await _most_inserted_by_a_message(site, monkeypatch, 5_003)
            assert most * MESSAGES_PER_TURN <= 1_500

    run(scenario())


def test_mutant_all_of_them_leave_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PORTION", link.MOST_KEPT)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            assert await _most_inserted_by_a_message(site, monkeypatch, 5_003) == 5_003

    run(scenario())


def test_mutant_ids_that_cannot_be_sent_at_once_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_passed = StateOwnerLink._write_passed

    def forgets(to_owner: StateOwnerLink) -> None:
        write_passed(to_owner)
        to_owner._passed.clear()

    monkeypatch.setattr(StateOwnerLink, "_write_passed", forgets)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _pass_unsent(site, monkeypatch)
            assert await lasts(lambda: not site.knows(7))

    run(scenario())


async def _pass_to_one_who_dies(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, inherited: bool = False
) -> None:
    """Write an id to a state owner that is gone before it reads; the worker then finds the next one."""

    def dies(_: Workers, session: WorkerSession, message: wire.Message) -> None:
        assert session._transport is not None
        session._transport.abort()

    (before,) = site.sessions
    with monkeypatch.context() as patched:
        patched.setattr(Workers, "take", dies)
        if inherited:
            site.worker._link.inherit(USER, 6, 7, site.now_ms())
        else:
            site.worker._link.insert_uncharged(USER, 7, site.now_ms())
        await until(lambda: before._transport is None)
    await until(lambda: site.sessions)


def test_ids_written_to_a_state_owner_that_dies_reach_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _pass_to_one_who_dies(site, monkeypatch)
            await until(lambda: site.knows(7))
            await until(lambda: not site.worker._link._passed)

    run(scenario())


def test_an_id_that_endtxn_gave_reaches_the_next_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            site.owner._manager.state.insert_uncharged(USER, 6, site.now_ms(), transactional=True)
            await _pass_to_one_who_dies(site, monkeypatch, inherited=True)
            table = site.owner._manager._quota.table
            await until(lambda: table.remembers(USER, 7, site.now_ms(), transactional=True))

    run(scenario())


def test_mutant_an_id_that_endtxn_gave_is_written_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(to_owner: StateOwnerLink, passed: PassedId) -> None:
        to_owner._write(wire.encoded(Kind.UNCHARGED, (0, [passed])))

    monkeypatch.setattr(StateOwnerLink, "_keep_passed", forgets)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            site.owner._manager.state.insert_uncharged(USER, 6, site.now_ms(), transactional=True)
            await _pass_to_one_who_dies(site, monkeypatch, inherited=True)
            table = site.owner._manager._quota.table
            assert await lasts(lambda: not table.remembers(USER, 7, site.now_ms(), transactional=True))

    run(scenario())


def test_an_id_for_which_there_is_no_room_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            asked = Question(USER, "10.0.0.1", "app", False, 1, [AskedId(7, 0, 0, b"t", 0)])
            answer, counted = site.worker.failed_open, site.worker._traffic._admission.access.fail_open
            with monkeypatch.context() as patched:
                patched.setattr(link, "MOST_UNSENT_BYTES", 0)
                patched.setattr(link, "MOST_KEPT", 1)
                refused = [answer(asked, site.now_ms()).refused for _ in range(2)]
                inherited = site.worker._link.inherit(USER, 6, 8, site.now_ms())
            assert refused == [False, False]
            assert counted.passed == 3, "two requests, and an id that no state owner will know"
            assert not inherited
            await until(lambda: site.knows(7))

    run(scenario())


def test_mutant_what_is_written_counts_as_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_passed = StateOwnerLink._write_passed

    def forgets_once_written(to_owner: StateOwnerLink) -> None:
        write_passed(to_owner)
        to_owner._inserted(to_owner._passed_written)

    monkeypatch.setattr(StateOwnerLink, "_write_passed", forgets_once_written)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            await _pass_to_one_who_dies(site, monkeypatch)
            assert await lasts(lambda: not site.knows(7))

    run(scenario())


async def _passed_before_the_start(path: Path) -> bool:
    """Have a new state owner take an id from a worker that connects before it begins; return whether it knows it."""
    async with site_at(path) as site:
        await site.owner.drain()
        await site.start_owner(2, passed_before=7)
        return site.knows(7)


def test_a_state_owner_knows_what_workers_sent_before_it_began(tmp_path: Path) -> None:
    async def scenario() -> None:
        assert await _passed_before_the_start(tmp_path)

    run(scenario())


def test_mutant_taking_over_forgets_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InterimState, "hand_over", lambda *_: 0)

    async def scenario() -> None:
        assert not await _passed_before_the_start(tmp_path)

    run(scenario())


# A new state owner


async def _admitted_before_a_restart(site: Site) -> Callable[[], bool]:
    """Admit an id, and replace the state owner; return whether the worker answers for the id without asking."""
    admission, session = site.worker._traffic._admission, Session(USER, "app", HOST, 1)
    batch, now_ms = (7, 0, 0, b"orders", 0), site.now_ms()
    asked = admission.judge(session, [batch], transactional=False, now_ms=now_ms)
    assert isinstance(asked, PendingDecision)
    answered = asyncio.Event()
    site.worker._link.ask(asked, lambda _asked: answered.set())
    await answered.wait()
    verdict = admission.judge(session, [batch], transactional=False, now_ms=now_ms, pending=asked)
    assert isinstance(verdict, Forward)
    admission.sticky.watched.clear()  # as new it is watched for five minutes, and no cache answers

    def is_cached() -> bool:
        return admission.knows(session, 7, 0, [b"orders"], [[0]], False, now_ms)

    assert is_cached()
    (before,) = site.sessions
    await site.owner.drain()
    assert before._transport is not None
    before._transport.abort()
    await site.start_owner(2)
    await until(lambda: site.sessions)
    return is_cached


def test_after_a_restart_of_the_state_owner_equal_quotas_empty_the_caches(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            is_cached = await _admitted_before_a_restart(site)
            await until(lambda: not is_cached())
            assert not site.knows(7), "the new one has to be asked"

    run(scenario())


def test_mutant_equal_quotas_leave_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: Callable[[Worker], None] = Worker.connected

    def as_before(worker: Worker) -> None:
        was_new = worker._is_new_owner
        connected(worker)
        worker._is_new_owner = was_new

    monkeypatch.setattr(Worker, "connected", as_before)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            assert await lasts(await _admitted_before_a_restart(site))

    run(scenario())


# A worker that leaves

LAST_EVENTS = 50


async def _leaves_while_the_owner_writes(site: Site, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have the worker leave behind its last events while the state owner, which has not read them, writes to it.

    Return how many of them the state owner has taken.
    """
    taken = 0

    def publish(_log: EventLog, _key: str, _value: bytes) -> None:
        nonlocal taken
        taken += 1

    monkeypatch.setattr(EventLog, "publish", publish)
    await until(lambda: site.worker._traffic.is_reached)
    (session,) = site.sessions
    assert session._transport is not None
    session._transport.pause_reading()
    for number in range(LAST_EVENTS):
        site.worker._link.publish(USER, b"event %d" % number)
    leaving = asyncio.ensure_future(site.worker.drain())
    for number in range(20):
        site.workers.learn_topic_id(b"%016d" % number)
        await asyncio.sleep(0.01)
    if session._transport is not None:
        session._transport.resume_reading()
    await leaving
    return taken


def test_the_last_events_of_a_worker_that_leaves_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            began_s = asyncio.get_running_loop().time()
            assert await _leaves_while_the_owner_writes(site, monkeypatch) == LAST_EVENTS
            assert asyncio.get_running_loop().time() - began_s < LAST_EVENTS_S, "the state owner closes"

    run(scenario())


def test_mutant_a_worker_that_leaves_closes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state owner's next message fails, and with it what it has not read."""

    async def close(to_owner: StateOwnerLink, _timeout_s: float) -> None:
        assert to_owner._transport is not None
        to_owner._is_closing = True
        to_owner._write(wire.encoded(Kind.BYE, None))
        to_owner._transport.close()
        await to_owner._lost.wait()

    monkeypatch.setattr(StateOwnerLink, "close", close)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            assert await _leaves_while_the_owner_writes(site, monkeypatch) < LAST_EVENTS

    run(scenario())


HEARTBEAT = 12


async def never(_head: RequestHead, _peer: Peer) -> None:
    """Leave a request without an answer."""


def test_from_the_beginning_of_a_drain_on_the_gateway_is_not_ready(tmp_path: Path) -> None:
    """Not when the last answer has come: until then a balancer would send clients to ports that are closed."""

    async def scenario() -> None:
        async with ScriptedBroker({HEARTBEAT: never}) as broker:
            site = Site(broker.address, tmp_path / "socket")
            await site.start()
            try:
                await until(site.owner.is_ready)
                _, writer = await asyncio.open_connection(HOST, site._settings.listeners[0].bind_port)
                writer.write(raw.request(HEARTBEAT, 0, {"group_id": "g", "member_id": "m"}))
                await until(lambda: broker.peers)
                leaving = asyncio.ensure_future(site.worker.drain())
                await until(lambda: not site.owner.is_ready())
                assert site.owner.not_ready_reason() == "the gateway drains"
                assert not leaving.done()
                broker.peers[-1].write(raw.response(HEARTBEAT, 0, {"error_code": 0}))
                await leaving
                writer.close()
            finally:
                await site.stop()

    run(scenario())


# All drain at once


async def _all_drain(site: Site) -> int:
    """Have the state owner drain with its worker, which has an event left; return how many it has taken since."""
    (session,) = site.sessions
    taken = session.events_taken
    drains = asyncio.ensure_future(site.owner.drain())
    await asyncio.sleep(0.1)
    site.worker._link.publish(USER, b"the last")
    await site.worker.drain()
    await drains
    return session.events_taken - taken


def test_where_all_drain_at_once_the_state_owner_goes_last(tmp_path: Path) -> None:
    """As where their supervisor was killed, or a signal went to all of them."""

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            assert await _all_drain(site) == 1

    run(scenario())


def test_mutant_the_state_owner_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(gateway: Workers) -> None:
        gateway._server.close()
        for session in list(gateway._sessions):
            if session._transport is not None:
                session._transport.abort()

    monkeypatch.setattr(Workers, "drain", at_once)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            assert await _all_drain(site) == 0

    run(scenario())


# A state owner that takes no worker


def test_who_is_cut_off_at_once_comes_again_slower_and_slower(tmp_path: Path) -> None:
    """One of another version, say: each connection is a line in both logs, and some work."""

    async def scenario() -> None:
        times: list[float] = []
        loop = asyncio.get_running_loop()

        class Refuses(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                times.append(loop.time())
                cast(asyncio.Transport, transport).abort()

        async with site_at(tmp_path) as site:
            path = str(tmp_path / "other")
            server = await loop.create_unix_server(Refuses, path)
            link = StateOwnerLink(path, 2, 1, site.worker)
            running = asyncio.ensure_future(link.run())
            await asyncio.sleep(1.0)
            running.cancel()
            server.close()
            assert 3 <= len(times) <= 6
            pauses = [later - earlier for earlier, later in pairwise(times)]
            assert pauses == sorted(pauses)

    run(scenario())


# Many users


def test_of_many_users_a_report_tells_of_some_and_the_next_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPORTED_USERS", 30)

    async def scenario() -> None:
        async with site_at(tmp_path) as site:
            counters, now_ms = site.worker._traffic._admission.counters, site.now_ms()
            for number in range(100):
                counters.of(f"user-{number}", now_ms).would_refuse += number
            portions: list[list[str]] = []
            while not portions or site.worker._unreported:
                portions.append(site.worker._next_users(now_ms))
            assert [len(portion) for portion in portions] == [30, 30, 30, 10]
            counters.of("user-5", now_ms).would_refuse += 1
            assert "user-5" in site.worker._next_users(site.now_ms())

    run(scenario())
