"""How long a worker waits for its state owner: while it moves 5 s, and not at all for one that is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pidgate.gateway.process import link, wire
from pidgate.gateway.process.link import StateOwnerLink
from pidgate.gateway.process.progress import GONE_S, Progress, progress_path
from pidgate.gateway.proxy.connection_quotas import Counts
from pidgate.gateway.quotas.administration import Kept
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.changes import Action, Change, Setting, Target
from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, AskedId, PendingDecision, Question
from pidgate.quota.verdicts import Bound, Reason

PASSED = Answer(False, (), Bound.USER)
REFUSED = Answer(True, (), Bound.USER)
CHANGE = Change(target=Target(Setting.PRODUCER_IDS_RATE, "alice"), action=Action.SET, value=5_000)


class Listener:
    """Answers in place of a silent state owner."""

    def __init__(self) -> None:
        self.is_connected = asyncio.Event()
        self.passed_ms: list[int] = []

    def connected(self) -> None:
        self.is_connected.set()

    def failed_open(self, question: Question, now_ms: int) -> Answer:
        self.passed_ms.append(now_ms)
        return PASSED

    def quotas_changed(self, quotas: Quotas, version: int) -> None: ...
    def refused_elsewhere(self, user: User, producer_id: int) -> None: ...
    def topic_id_learnt(self, topic_id: bytes) -> None: ...
    def connections_elsewhere(self, counts: Counts) -> None: ...
    def token_owners_elsewhere(self, tokens: Sequence[TokenOwner]) -> None: ...


class ScriptedOwner(asyncio.Protocol):
    """`answers`: which of the questions, by their order, are answered; each after a pause."""

    def __init__(self, answers: Callable[[int], bool], pause_s: float) -> None:
        self._answers = answers
        self._pause_s = pause_s
        self._decoder = wire.Decoder()
        self._asked: list[int] = []
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if message.kind is wire.Kind.ASK:
                number = message.body[0]
                self._asked.append(number)
                if self._answers(len(self._asked)):
                    delay_s = self._pause_s * len(self._asked)
                    asyncio.get_running_loop().call_later(delay_s, self._answer, number)
            elif message.kind is wire.Kind.BYE and self._transport is not None:
                self._transport.close()

    def _answer(self, number: int) -> None:
        if self._transport is not None and not self._transport.is_closing():
            body = (number, REFUSED)
            self._transport.write(wire.encoded(wire.Kind.ANSWER, body))


def waits(
    path: Path,
    answers: Callable[[int], bool],
    pause_s: float,
    questions: int,
    *,
    progress: Progress | None = None,
    listener: Listener | None = None,
) -> list[tuple[Answer, float]]:
    """What each question was answered with, and after how long."""

    async def scenario() -> list[tuple[Answer, float]]:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: ScriptedOwner(answers, pause_s), str(path))
        observed = listener or Listener()
        to_owner = StateOwnerLink(str(path), 1, 4711, observed)
        running = asyncio.ensure_future(to_owner.run())
        await observed.is_connected.wait()
        found: list[tuple[Answer, float]] = []
        done = asyncio.Event()
        began_s = time.monotonic()

        async def turn() -> None:
            while progress is not None:
                progress.advance()
                await asyncio.sleep(0.05)

        turning = asyncio.ensure_future(turn())

        def answered(ask: PendingDecision) -> None:
            assert ask.answer is not None
            found.append((ask.answer, time.monotonic() - began_s))
            if len(found) == questions:
                done.set()

        for number in range(questions):
            asked = Question("alice", "10.0.0.1", "app", False, 1, [AskedId(number, 0, 0, b"t", 0)])
            to_owner.ask(PendingDecision(asked, int(loop.time() * 1000)), answered)
        await asyncio.wait_for(done.wait(), 20)
        running.cancel()
        turning.cancel()
        await to_owner.close(1.0)
        server.close()
        await server.wait_closed()
        return found

    return asyncio.run(scenario())


def test_a_silent_owner_is_gone_after_a_second(tmp_path: Path) -> None:
    found = waits(tmp_path / "s", lambda _number: False, 0.0, 3)
    assert [answer for answer, _ in found] == [PASSED] * 3
    assert all(GONE_S <= waited_s < 4.0 for _, waited_s in found)


def _passed_after_ms(path: Path) -> int:
    """How long after it was asked a question counts as passed, while the state owner is silent."""
    listener, began_ms = Listener(), time.monotonic() * 1000
    waits(path, lambda _number: False, 0.0, 1, listener=listener)
    return int(listener.passed_ms[0] - began_ms)


def test_what_passes_counts_in_the_window_in_which_it_passes(tmp_path: Path) -> None:
    """Of two windows of asking as much could reach the brokers in one of passing."""
    assert _passed_after_ms(tmp_path / "s") >= GONE_S * 1000 - 1


def test_mutant_what_passes_counts_when_it_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_asked(to_owner: StateOwnerLink, asked: PendingDecision, answered: link.Answered) -> None:
        asked.answer = to_owner._listener.failed_open(asked.question, asked.asked_ms)
        answered(asked)

    monkeypatch.setattr(StateOwnerLink, "_pass", as_asked)
    assert _passed_after_ms(tmp_path / "s") < GONE_S * 1000 - 1


def test_an_owner_that_answers_others_is_behind_and_not_silent(tmp_path: Path) -> None:
    found = waits(tmp_path / "s", lambda _number: True, 0.1, 15)
    assert [answer for answer, _ in found] == [REFUSED] * 15
    assert found[-1][1] >= 1.5


def test_a_busy_owner_is_waited_for_and_then_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves, and answers nothing: nothing passes by that."""
    monkeypatch.setattr(link, "LONGEST_HOLD_MS", 1_500)
    found = waits(
        tmp_path / "s", lambda _number: False, 0.0, 3, progress=Progress(progress_path(tmp_path / "s"))
    )
    for answer, waited_s in found:
        assert answer.refused
        assert [decision.reason for decision in answer.decisions] == [Reason.BUSY]
        assert waited_s >= 1.5


@pytest.mark.parametrize("cause", ["behind", "too large", "does not read"])
def test_mutant_one_that_is_busy_opens_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """Whoever can make the state owner slow gains ids by it, his own and others'."""

    def nothing_passes_a_busy_owner(path: Path) -> bool:
        with monkeypatch.context() as patched:
            if cause == "behind":
                patched.setattr(link, "LONGEST_HOLD_MS", 500)
            elif cause == "too large":
                patched.setattr(link, "LONGEST_QUESTION_BYTES", 10)
            else:
                patched.setattr(link, "MOST_UNSENT_BYTES", 0)
            found = waits(path, lambda _number: False, 0.0, 2, progress=Progress(progress_path(path)))
        return all(answer.refused for answer, _ in found)

    assert nothing_passes_a_busy_owner(tmp_path / "s")
    monkeypatch.setattr(StateOwnerLink, "_go_without", StateOwnerLink._pass)
    assert not nothing_passes_a_busy_owner(tmp_path / "mutant")


def test_a_question_that_is_too_large_is_refused_and_cuts_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LONGEST_QUESTION_BYTES", 10)
    found = waits(tmp_path / "s", lambda _number: True, 0.0, 2)
    reasons = [[decision.reason for decision in answer.decisions] for answer, _ in found]
    assert reasons == [[Reason.BUSY]] * 2


@pytest.mark.parametrize("answers", [True, False])
def test_a_change_is_answered_or_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """None: nobody knows what came of it; the connection that asked goes on."""
    monkeypatch.setattr(link, "CHANGE_PATIENCE_S", 0.2)

    class Owner(ScriptedOwner):
        def data_received(self, data: bytes) -> None:
            for message in self._decoder.feed(data):
                if answers and message.kind is wire.Kind.CHANGE and self._transport is not None:
                    number, only_check, changes = message.body
                    assert not only_check
                    assert changes == [CHANGE]
                    self._transport.write(wire.encoded(wire.Kind.CHANGED, (number, ["no"], Kept.TOPIC)))

    async def scenario() -> tuple[list[str | None] | None, Kept | None]:
        loop = asyncio.get_running_loop()
        state_owner = lambda: Owner(lambda _number: False, 0.0)  # noqa: E731
        server = await loop.create_unix_server(state_owner, str(tmp_path / "s"))
        listener = Listener()
        to_owner = StateOwnerLink(str(tmp_path / "s"), 1, 4711, listener)
        running = asyncio.ensure_future(to_owner.run())
        await listener.is_connected.wait()
        told: asyncio.Future[tuple[list[str | None] | None, Kept | None]] = loop.create_future()
        to_owner.administer([CHANGE], False, lambda problems, kept: told.set_result((problems, kept)))
        outcome = await asyncio.wait_for(told, 5)
        running.cancel()
        await to_owner.close(1.0)
        server.close()
        await server.wait_closed()
        return outcome

    assert asyncio.run(scenario()) == ((["no"], Kept.TOPIC) if answers else (None, None))
