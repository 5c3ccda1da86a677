"""What the state owner admits becomes an event and is counted, once, whether or not its request still waits.

A real state owner and a real worker, on one event loop, and real sockets of clients.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pidgate.events.definitions import DecisionEvent
from pidgate.events.reading import from_json
from pidgate.gateway.process import link
from pidgate.gateway.process.progress import ProgressWatch
from pidgate.gateway.process.workers import Workers, WorkerSession
from pidgate.gateway.state.event_log import EventLog
from pidgate.quota import state_access
from pidgate.quota.settings import Mode
from pidgate.quota.state import Question
from pidgate.quota.verdicts import Reason
from tests.support.frames import produce_request, record_batch
from tests.support.loopback import HOST, run, until
from tests.unit.gateway.process.test_workers_anew import Site, lasts, site_at

USER = "ANONYMOUS"
PRODUCER_ID = 4711
OTHER_CONNECTION = 99
HIGHEST_SEQUENCE = 2**31 - 1
NO_FRAME = b"\xff\xff\xff\xff"
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the state owner has written to the topic, which the site does without."""
    values: list[bytes] = []
    publish = EventLog.publish

    def noted(log: EventLog, key: str, value: bytes) -> None:
        values.append(value)
        publish(log, key, value)

    monkeypatch.setattr(EventLog, "publish", noted)
    return values


def produce() -> bytes:
    frame = produce_request(9, [("orders", [(0, record_batch(PRODUCER_ID))])], client_id="etl")
    return len(frame).to_bytes(4, "big") + frame


def admitted(values: list[bytes]) -> list[tuple[int, str]]:
    """(id, reason) of every admission that is in the topic."""
    events = [event for event in map(from_json, values) if isinstance(event, DecisionEvent)]
    return [(event.producer_id, event.reason) for event in events if event.decision == "admit"]


def counted(site: Site) -> dict[Reason, int]:
    return site.worker._traffic._admission.counters.of(USER, site.now_ms()).admitted


def slow(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    """Have the state owner answer each question so late, while it goes on with all else."""
    answer = Workers._answer

    def later(workers: Workers, session: WorkerSession, number: int, asked_ms: int, asked: Question) -> None:
        asyncio.get_running_loop().call_later(pause_s, answer, workers, session, number, asked_ms, asked)

    monkeypatch.setattr(Workers, "_answer", later)


@contextmanager
def produced(site: Site, sent: bytes = produce()) -> Iterator[None]:
    """A client that has sent this, and stays."""
    with socket.create_connection((HOST, site._settings.listeners[0].bind.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.sendall(sent)
        yield


def play(path: Path, scenario: Callable[[Site], Awaitable[None]]) -> None:
    """Play it at a site that makes events; until its state is restored all would be observed."""

    async def whole() -> None:
        async with site_at(path, path / "state") as site:
            await until(lambda: site.owner._manager.is_restored)
            await scenario(site)

    run(whole())


async def ask_and_be_gone(site: Site) -> None:
    with produced(site):
        await until(lambda: site.worker._link._asked)
    await until(lambda: not site.worker._traffic.shared.channels)


def test_one_whose_asker_is_gone_is_recorded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    slow(monkeypatch, 0.3)

    async def scenario(site: Site) -> None:
        await ask_and_be_gone(site)
        await until(lambda: admitted(published))
        assert counted(site) == {Reason.FIRST_SEEN: 1}

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "first_seen")]


def test_one_whose_request_goes_on_is_so_once(tmp_path: Path, published: list[bytes]) -> None:
    async def scenario(site: Site) -> None:
        with produced(site):
            await until(lambda: admitted(published))
            assert await lasts(lambda: counted(site) == {Reason.FIRST_SEEN: 1})

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "first_seen")]


def test_one_whose_request_was_refused_as_busy_is_so_when_its_answer_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    """Its retry is known then: nobody would tell of it any more."""
    monkeypatch.setattr(link, "LONGEST_HOLD_MS", 50)
    slow(monkeypatch, 0.5)

    async def scenario(site: Site) -> None:
        with produced(site):
            await until(lambda: site.worker._link._late)
            assert counted(site) == {}
            await until(lambda: admitted(published))
            assert not site.worker._link._late
            assert counted(site) == {Reason.FIRST_SEEN: 1}

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "first_seen")]


def test_late_answers_without_room_are_events_that_were_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    monkeypatch.setattr(link, "LONGEST_HOLD_MS", 50)
    monkeypatch.setattr(link, "MOST_LATE", 0)
    slow(monkeypatch, 0.5)

    async def scenario(site: Site) -> None:
        with produced(site):
            await until(lambda: site.worker._link.events.dropped)
            assert not site.worker._link._late
        assert site.worker._link.events.dropped == 1

    play(tmp_path, scenario)


def test_one_that_passed_undecided_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    slow(monkeypatch, 0.5)

    async def scenario(site: Site) -> None:
        monkeypatch.setattr(ProgressWatch, "stands_still", lambda _watch, _now_s: True)
        with produced(site):
            await until(lambda: admitted(published))
            assert await lasts(lambda: counted(site) == {Reason.FAIL_OPEN: 1})

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "fail_open")]


def test_one_whose_request_is_refused_here_meanwhile_is_recorded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    slow(monkeypatch, 0.3)

    async def scenario(site: Site) -> None:
        admission = site.worker._traffic._admission
        with produced(site):
            await until(lambda: site.worker._link._asked)
            before = (PRODUCER_ID, 0, HIGHEST_SEQUENCE, b"orders", 0)
            admission.sticky.refused(USER, before, OTHER_CONNECTION, site.now_ms())
            await until(lambda: admission.counters.of(USER, site.now_ms()).refused)
            await until(lambda: admitted(published))
        assert admission.counters.of(USER, site.now_ms()).refused == {Reason.STICKY: 1}
        assert counted(site) == {Reason.FIRST_SEEN: 1}

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "first_seen")]


def test_one_that_was_forwarded_is_asked_about_when_its_connection_ends_in_the_same_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    monkeypatch.setattr(state_access, "WAITS_ON_MS", 0)

    async def scenario(site: Site) -> None:
        site.workers.set_quotas(replace(site.workers._quotas, mode=Mode.OBSERVE))
        await until(lambda: site.worker._traffic.quotas.mode is Mode.OBSERVE)
        with produced(site, produce() + NO_FRAME):
            await until(lambda: admitted(published))

    play(tmp_path, scenario)
    assert admitted(published) == [(PRODUCER_ID, "observe")]


def test_a_worker_that_ends_waits_for_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    slow(monkeypatch, 0.3)

    async def scenario(site: Site) -> None:
        await ask_and_be_gone(site)
        await site.worker.drain()
        await until(lambda: admitted(published))

    play(tmp_path, scenario)


def test_a_worker_that_ends_waits_for_an_answer_that_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: list[bytes]
) -> None:
    monkeypatch.setattr(link, "LONGEST_HOLD_MS", 50)
    slow(monkeypatch, 0.7)

    async def scenario(site: Site) -> None:
        with produced(site):
            await until(lambda: site.worker._link._late)
        await site.worker.drain()
        await until(lambda: admitted(published))

    play(tmp_path, scenario)
