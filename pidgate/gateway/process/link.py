"""A worker's end of the socket to the state owner: questions out, answers in.

When the state owner is gone (no link, or its progress counter stands still), questions are answered here by letting
the requests pass, and the ids are sent as uncharged when it reads again. One that is busy is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol, cast

from pidgate.events.definitions import Heard
from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.metrics.reports import Report
from pidgate.gateway.process import wire
from pidgate.gateway.process.event_outbox import EventOutbox
from pidgate.gateway.process.message_reader import MessageReader
from pidgate.gateway.process.progress import ProgressWatch, progress_path
from pidgate.gateway.process.wire import Kind
from pidgate.gateway.proxy.connection_quotas import Counts
from pidgate.gateway.quotas.administration import OnChanged
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.changes import Change
from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, PassedId, PendingDecision, Question, busy

log = logger()

LOOK_S: Final = 0.05
"""So often an unanswered question looks whether the state owner still moves."""
UNREAD_S: Final = 0.002
LONGEST_HOLD_MS: Final = 5_000
"""Longest wait for a state owner that is busy; then the request is refused, and its client tries again."""
LONGEST_QUESTION_BYTES: Final = 1024 * 1024
"""A request names few ids, and Kafka's topics have short names; one that asks more is refused, not sent."""
CHANGE_PATIENCE_S: Final = 10.0
"""A state owner that hangs must not keep an administrator's connection; it waits for the topic for 3 s itself."""
RECONNECT_S: Final = 0.05
SHORT_S: Final = 1.0
"""Connections that end within it are made again after twice the time, each time."""
LONGEST_RECONNECT_S: Final = 5.0
MOST_UNSENT_BYTES: Final = 16 * 1024 * 1024
"""Beyond it nothing more is written until the state owner reads."""
PORTION: Final = 50
"""Ids, or tokens, in one message: with 6 us for each, a turn of the state owner (MESSAGES_PER_TURN) takes 5 ms."""
MOST_KEPT: Final = 100_000
"""Ids that no state owner has inserted yet."""
MOST_LATE: Final = 10_000
"""Answers that are still counted when they come after LONGEST_HOLD_MS; each keeps its connection in memory."""

Answered = Callable[[PendingDecision], None]


class NoRoom(Exception):
    """There are MOST_KEPT ids that no state owner has inserted yet."""


class StateListener(Protocol):
    """Receiver of what the state owner sends; `failed_open` answers in its place.

    `connected`: it may be a new state owner, which knows nothing of this worker; it sends the quotas in force at once.
    """

    def connected(self) -> None: ...
    def failed_open(self, question: Question, now_ms: int) -> Answer: ...
    def quotas_changed(self, quotas: Quotas, version: int) -> None: ...
    def refused_elsewhere(self, user: User, producer_id: int) -> None: ...
    def topic_id_learnt(self, topic_id: bytes) -> None: ...
    def connections_elsewhere(self, counts: Counts) -> None: ...
    def token_owners_elsewhere(self, tokens: Sequence[TokenOwner]) -> None: ...


class StateOwnerLink(asyncio.Protocol):
    """The connection to the state owner, made again whenever it is lost. The worker's QuotaState and EventSink."""

    def __init__(self, path: str, worker: int, process_id: int, listener: StateListener) -> None:
        self._path = path
        self._worker = worker
        self._process_id = process_id
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._now_ms = monotonic_ms(self._loop)
        self._transport: asyncio.Transport | None = None
        self._reader: MessageReader | None = None
        self._lost = asyncio.Event()
        self._is_closing = False
        self._number = 0
        self._progress = ProgressWatch(progress_path(Path(path)))
        self._asked: dict[int, tuple[PendingDecision, Answered, asyncio.TimerHandle]] = {}
        self._late: dict[int, tuple[PendingDecision, Answered]] = {}
        """Questions whose requests were refused unanswered: the state owner still answers each."""
        self._passed: deque[tuple[int, PassedId]] = deque()
        self._passed_number = 0
        self._passed_written = 0
        self.events = EventOutbox()
        self.applied_offsets: list[int] = []
        self._changes: dict[int, tuple[OnChanged, asyncio.TimerHandle]] = {}

    async def run(self) -> None:
        """Connect, and connect again; until cancelled."""
        wait_s = RECONNECT_S
        while True:
            self._lost.clear()
            began_s = self._loop.time()
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                continue
            await self._lost.wait()
            # What ended it so soon may end the next one, too: that of another version, say, or by a message of ours.
            is_short = self._loop.time() - began_s < SHORT_S
            wait_s = min(2 * wait_s, LONGEST_RECONNECT_S) if is_short else RECONNECT_S
            await asyncio.sleep(wait_s)

    async def close(self, timeout_s: float) -> None:
        """Say goodbye and wait until the state owner closes, or the time is over; `run` has been cancelled before.

        It closes when it has read all. Closed from here, its next message would fail, and with it what it has not read.
        """
        if self._transport is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                # What is answered behind the BYE would be recorded nowhere.
                while self._asked or self._late:  # noqa: ASYNC110
                    await asyncio.sleep(UNREAD_S)
                self._is_closing = True
                self._write(wire.encoded(Kind.BYE, None))
                await self._lost.wait()
        if self._transport is not None:
            self._transport.close()

    # ---- asking ----------------------------------------------------------------------------------------

    def ask(self, asked: PendingDecision, answered: Answered) -> None:
        """Put a question; `answered` is called with it, and never before this returns.

        It passes when the state owner is gone; for one that is busy it waits for LONGEST_HOLD_MS, then it is refused.
        The answer may come later still: then `answered` is called with another PendingDecision, to count it.
        """
        if self._transport is None:
            self._loop.call_soon(self._pass, asked, answered)
            return
        self._number += 1
        message = wire.encoded(Kind.ASK, (self._number, asked.asked_ms, asked.question))
        if not self._can_write or len(message) > LONGEST_QUESTION_BYTES:
            self._loop.call_soon(self._go_without, asked, answered)
            return
        timer = self._loop.call_later(LOOK_S, self._look, self._number)
        self._asked[self._number] = (asked, answered, timer)
        self._write(message)

    def _look(self, number: int) -> None:
        asked, answered, _ = self._asked[number]
        now_s = self._loop.time()
        is_late = not asked.question.passed and now_s * 1000 - asked.asked_ms >= LONGEST_HOLD_MS
        if is_late or self._progress.stands_still(now_s):
            # Timers come before sockets: what lies there unread has come in time.
            timer = self._loop.call_later(UNREAD_S, self._give_up, number)
        else:
            timer = self._loop.call_later(LOOK_S, self._look, number)
        self._asked[number] = (asked, answered, timer)

    def _give_up(self, number: int) -> None:
        asked, answered, _ = self._asked.pop(number)
        late = PendingDecision(asked.question, asked.asked_ms, of_transaction=asked.of_transaction)
        self._go_without(asked, answered)
        # What passed is counted as it passed, and not again.
        if asked.answer is not None and asked.answer.refused:
            if len(self._late) < MOST_LATE:
                self._late[number] = late, answered
            else:
                self.events.dropped += 1

    def _go_without(self, asked: PendingDecision, answered: Answered) -> None:
        if asked.question.passed or self._transport is None or self._progress.stands_still(self._loop.time()):
            self._pass(asked, answered)
        else:
            asked.answer = busy(asked.question, asked.asked_ms)
            answered(asked)

    def _pass(self, asked: PendingDecision, answered: Answered) -> None:
        # Counted when it passes, not when it was asked: the ceiling bounds what reaches brokers in a window.
        asked.answer = self._listener.failed_open(asked.question, self._now_ms())
        answered(asked)

    def administer(self, changes: Sequence[Change], only_check: bool, done: OnChanged) -> None:
        """Have the state owner make changes of the quotas, or check them (see Administer)."""
        if not self._can_write:
            self._loop.call_soon(done, None, None)
            return
        self._number += 1
        timer = self._loop.call_later(CHANGE_PATIENCE_S, self._not_changed, self._number)
        self._changes[self._number] = done, timer
        self._write(wire.encoded(Kind.CHANGE, (self._number, only_check, list(changes))))

    def _not_changed(self, number: int) -> None:
        done, _ = self._changes.pop(number)
        done(None, None)

    # ---- sending ---------------------------------------------------------------------------------------

    def decide(self, question: Question, now_ms: int) -> Answer | None:
        """Return None: the answer comes by `ask`."""
        return None

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Send an id that counts as admitted. Raises NoRoom: it passes all the same, and is counted as not inserted."""
        self._keep_passed(PassedId(user, producer_id, transactional))

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Send a transactional id that counts as admitted. Raises NoRoom, as insert_uncharged does."""
        self._keep_passed(PassedId(user, hashed, True, is_transactional_id=True))

    def _keep_passed(self, passed: PassedId) -> None:
        """Send an id; it is kept, and sent to the next state owner, until one has inserted it.

        What is written is not yet received: a process that was killed accepts connections for a moment.
        """
        if len(self._passed) >= MOST_KEPT:
            raise NoRoom(f"{MOST_KEPT} ids that passed have not reached the state owner")
        self._passed_number += 1
        self._passed.append((self._passed_number, passed))
        self._write_passed()

    def _write_passed(self) -> None:
        """Write the ids that were not written on this connection: all, as what is asked next may be one of them."""
        if not (self._passed and self._can_write and self._passed_written < self._passed_number):
            return
        unwritten = [*takewhile(lambda kept: kept[0] > self._passed_written, reversed(self._passed))]
        unwritten.reverse()
        for at in range(0, len(unwritten), PORTION):
            if not self._can_write:
                break
            portion = unwritten[at : at + PORTION]
            self._passed_written = portion[-1][0]
            self._write(
                wire.encoded(Kind.UNCHARGED, (self._passed_written, [passed for _, passed in portion]))
            )

    def _inserted(self, last_number: int) -> None:
        while self._passed and self._passed[0][0] <= last_number:
            self._passed.popleft()

    def watched(self, ids: list[tuple[User, int]]) -> None:
        """Send the ids that this worker watches, which a new state owner does not know."""
        self._write_in_portions(Kind.WATCHED, ids)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Send an id that EndTxn gave; the state owner knows whether the old one is remembered.

        Returns False where there is no room: then it is an id like any other.
        """
        try:
            self._keep_passed(PassedId(user, new_producer_id, True, predecessor=old_producer_id))
        except NoRoom:
            return False
        return True

    def publish(self, key: str, value: bytes) -> None:
        """Send an event for the topic; it is kept until the state owner has made it safe (see EventOutbox)."""
        self.events.put(key, value)
        self._write_events()

    def _write_events(self) -> None:
        """In the order in which they were made, as many as the state owner takes."""
        while self._can_write and (event := self.events.next()) is not None:
            self._write(event)

    def applied_ranges(self) -> list[Heard]:
        """Return nothing: when others' events were applied, only the state owner knows."""
        return []

    def report(self, report: Report) -> None:
        """Send what was counted; dropped when the state owner does not read, as the next report holds it too.

        What was kept while it did not read leaves with the first report that it takes.
        """
        self._write_passed()
        self._write_events()
        if self._can_write:
            self._write(wire.encoded(Kind.REPORT, report))

    def token_owners(self, tokens: Sequence[TokenOwner]) -> None:
        """Send owners of delegation tokens; those that are lost are unidentified at the other workers."""
        self._write_in_portions(Kind.TOKEN_OWNERS, tokens)

    def connections(self, changed: Counts) -> bool:
        """Send how many connections are open here; return False when the state owner does not read."""
        if not self._can_write:
            return False
        self._write(wire.encoded(Kind.CONNECTIONS, changed))
        return True

    @property
    def _can_write(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() < MOST_UNSENT_BYTES

    def _write_in_portions(self, kind: Kind, items: Sequence[object]) -> None:
        for at in range(0, len(items), PORTION):
            self._write(wire.encoded(kind, items[at : at + PORTION]))

    def _write(self, message: bytes) -> None:
        if self._transport is not None:
            self._transport.write(message)

    # ---- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = MessageReader(self._transport, self._take, self._failed)
        self._write(wire.encoded(Kind.HELLO, (wire.WIRE_VERSION, self._worker, self._process_id)))
        self._progress.moved(self._loop.time())
        self._passed_written = 0
        self._write_passed()
        self.events.connected()
        self._write_events()
        log.info(Event.STATE_OWNER_CONNECTED, worker=self._worker)
        self._listener.connected()

    def data_received(self, data: bytes) -> None:
        self._progress.moved(self._loop.time())
        assert self._reader is not None
        self._reader.feed(data)

    def _failed(self, error: Exception) -> None:
        log.error(Event.STATE_OWNER_LOST, worker=self._worker, reason=str(error))

    def _take(self, message: wire.Message) -> None:
        if message.kind is Kind.ANSWER:
            number, answer = message.body
            self._answered(number, answer)
        elif message.kind is Kind.REFUSED:
            self._listener.refused_elsewhere(*message.body)
        elif message.kind is Kind.TOPIC_ID:
            self._listener.topic_id_learnt(message.body)
        elif message.kind is Kind.CONNECTIONS_ELSEWHERE:
            self._listener.connections_elsewhere(message.body)
        elif message.kind is Kind.TOKEN_OWNERS:
            self._listener.token_owners_elsewhere(message.body)
        elif message.kind is Kind.QUOTAS:
            self._listener.quotas_changed(*message.body)
        elif message.kind is Kind.CHANGED:
            number, problems, kept = message.body
            waiting_change = self._changes.pop(number, None)
            if waiting_change is not None:  # else it came too late, and was given up
                done, timer = waiting_change
                timer.cancel()
                done(problems, kept)
        elif message.kind is Kind.INSERTED:
            self._inserted(message.body)
        elif message.kind is Kind.EVENTS_SAFE:
            self.events.acknowledged(message.body)
        elif message.kind is Kind.OFFSETS:
            self.applied_offsets = message.body

    def _answered(self, number: int, answer: Answer) -> None:
        """Give an answer to whoever asked; its request may have been refused, or have passed, without it."""
        if number in self._asked:
            asked, answered, timer = self._asked.pop(number)
            timer.cancel()
        elif number in self._late:
            asked, answered = self._late.pop(number)
        else:
            return
        asked.answer = answer
        answered(asked)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closing:
            log.warning(Event.STATE_OWNER_LOST, worker=self._worker, reason=str(exc or "its process is gone"))
        if self._reader is not None:
            self._reader.end()
        self._transport = None
        self._lost.set()
        changes, self._changes = self._changes, {}
        for done, timer in changes.values():
            timer.cancel()
            done(None, None)
        self._late.clear()
        asked, self._asked = self._asked, {}
        for question, answered, timer in asked.values():
            timer.cancel()
            self._pass(question, answered)
