"""The base of all model producers: batches in, their ends to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar

from pidgate.load.plan import Address
from tests.simulator.clients import frames
from tests.simulator.clients.batches import Batch, State, Transaction, Wait
from tests.simulator.clients.cluster import ClusterClient
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.turns import NEVER, Trace
from tests.support.wire import BY_ID, produce_frame


class ModelProducer(ClusterClient):
    """An idempotent or transactional producer. A family says what a turn does."""

    family: ClassVar[str] = ""

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.transactional_id = settings.transactional_id
        self._padding = b"|" + b"." * settings.padding_bytes if settings.padding_bytes else b""
        self.transaction: Transaction | None = None
        self.open: dict[Batch, None] = {}
        """Batches whose end the application does not know yet, in the order of sending."""
        self._numbers: dict[int, int] = {}

    # ---- what a schedule does with it ------------------------------------------------------------------

    async def start(self) -> str:
        """Begin. A transactional producer waits for its id; returns why it has none, or an empty string."""
        self.wake()
        return ""

    def send(self, partition: int, records: int = 1) -> Batch:
        """The application sends one more batch; look at what is returned for its end."""
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        value = b"%s|%d|%d%s" % (self.name.encode(), partition, number, self._padding)
        batch = Batch(self.name, partition, number, records, value, self.now_s)
        if self.transaction is not None:
            batch.transaction = self.transaction.number
            self.transaction.batches.append(batch)
        self.open[batch] = None
        why_not = "closed" if self.is_over else self.told.fatal or self.refuses_to_send()
        if why_not:
            self.failed(batch, why_not)
        else:
            self.enqueue(batch)
            self.wake()
        return batch

    async def begin(self) -> str:
        """Begin a transaction. Returns why it cannot, or an empty string; so do `commit` and `abort`."""
        raise NotImplementedError

    async def commit(self) -> str:
        """Commit the transaction."""
        raise NotImplementedError

    async def abort(self) -> str:
        """Abort the transaction."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Return when the application knows the end of all that it has sent."""
        wait = self.begin_wait("flush")
        for batch in list(self.open):
            await batch.wait()
        wait.ended_s = self.now_s

    async def close(self, timeout_s: float = NEVER) -> None:
        """Send what is left, then close the connections; what is not done within `timeout_s` fails."""
        wait = self.begin_wait("close")
        try:
            async with asyncio.timeout(None if timeout_s == NEVER else timeout_s):
                await self.finish_up()
        except TimeoutError:
            self.fail_all("closed")
        self.hang_up(at_once=False)
        wait.ended_s = self.now_s

    def crash(self) -> None:
        """Nothing more is sent, and nobody is told anything any more."""
        self.hang_up(at_once=True)

    # ---- what a family says ----------------------------------------------------------------------------

    def enqueue(self, batch: Batch) -> None:
        """Take a batch of the application."""
        raise NotImplementedError

    def refuses_to_send(self) -> str:
        """Why the application cannot send now, if so."""
        return ""

    async def finish_up(self) -> None:
        """Come to an end politely."""
        for batch in list(self.open):
            await batch.wait()

    # ---- transactions ----------------------------------------------------------------------------------

    def transaction_began(self) -> None:
        """Note that the application is in a transaction."""
        self.transaction = Transaction(len(self.told.transactions), self.now_s)
        self.told.transactions.append(self.transaction)

    def transaction_ended(self, transaction: Transaction, error: str, *, commit: bool) -> None:
        """Note what the application got when it asked for the end; with an error, it may ask again."""
        transaction.error, transaction.ended_s = error, self.now_s
        if not error:
            transaction.outcome = "committed" if commit else "aborted"
            self.transaction = None

    # ---- Produce ---------------------------------------------------------------------------------------

    def produce(
        self,
        node: Node,
        batches: Sequence[Batch],
        answered: Callable[[bytes | None, int], None],
        timeout_s: float | None = None,
    ) -> None:
        """Send one request with these batches, as they are numbered. `answered`: takes the answer and its version."""
        connection = node.connection
        assert connection is not None
        newest = (
            self.versions[frames.PRODUCE] if self.topic_id else min(self.versions[frames.PRODUCE], BY_ID - 1)
        )
        version = node.speaks(frames.PRODUCE, newest)
        correlation_id = connection.next_correlation_id()
        frame = produce_frame(
            version,
            correlation_id,
            self.name,
            tuple(
                (
                    batch.partition,
                    batch.producer_id,
                    batch.epoch,
                    batch.base_sequence,
                    batch.records,
                    batch.value,
                )
                for batch in batches
            ),
            topic=self.topic.encode(),
            topic_id=self.topic_id,
            transactional_id=None if self.transactional_id is None else self.transactional_id.encode(),
        )
        now_s = self.now_s
        for batch in batches:
            if batch.sent_s < 0:
                batch.sent_s = now_s
        if self.is_traced:
            what = ", ".join(f"{batch.partition}:{batch.epoch}/{batch.base_sequence}" for batch in batches)
            self.note(f"sends {what} to {node.node_id}")
        connection.send(correlation_id, frame, lambda answer: answered(answer, version), timeout_s)

    def read_produce(
        self, node: Node, answer: bytes, version: int
    ) -> tuple[list[frames.Outcome], dict[int, Address]]:
        """Outcomes and endpoints of an answer; the throttle in it is heeded as the family does."""
        outcomes, throttle_ms, endpoints = frames.read_produce(answer, version)
        if self.is_traced:
            what = {outcome.partition: outcome.error_code for outcome in outcomes}
            self.note(f"reads {what} from {node.node_id}, throttle {throttle_ms}")
        self.throttled(node, throttle_ms)
        return outcomes, endpoints

    # ---- what the application is told ------------------------------------------------------------------

    def acked(self, batch: Batch, offset: int = -1) -> None:
        """It is written, as far as the client knows."""
        self._told(batch, State.ACKED, self.told.acknowledged)
        batch.offset = offset
        if self.told.heard is not None:
            self.told.heard(batch)
        if self.is_traced:
            self.note(f"acked {batch.partition}/{batch.number} at {offset}")

    def failed(self, batch: Batch, error: str) -> None:
        """It will not be sent again."""
        self._told(batch, State.FAILED, self.told.failed)
        batch.error = error
        if self.is_traced:
            self.note(f"failed {batch.partition}/{batch.number}: {error}")

    def _told(self, batch: Batch, state: State, among: list[Batch]) -> None:
        del self.open[batch]
        batch.finish(state, self.now_s)
        among.append(batch)

    def fail_all(self, error: str) -> None:
        """All that is open."""
        for batch in list(self.open):
            self.failed(batch, error)

    def is_of_no_use(self, why: str) -> None:
        """The producer has a fatal error."""
        if not self.told.fatal:
            self.told.fatal = why
            self.note(f"fatal: {why}")
        self.wake()

    def begin_wait(self, kind: str) -> Wait:
        """Note that something begins that takes time."""
        wait = Wait(kind, self.now_s)
        self.told.waits.append(wait)
        return wait
