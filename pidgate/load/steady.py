"""Long-lived producers: the steady one, and the one recreated after each error.

The second sends a batch and waits for its answer, like a program that catches the exception of
`send().get()`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from pidgate.load.connection import Answer, Connection
from pidgate.load.context import Context, NoProducerId, Producer, end_task
from pidgate.load.pipeline import MOST_AHEAD, Pipeline, Then
from pidgate.load.plan import Address
from pidgate.load.tally import Tally
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import LoginRefused

_AGAIN_S: Final = 0.1
_REFUSED_AGAIN_S: Final = 1.0


class SteadyProducer:
    """One producer id, its own partitions, at most five unacknowledged batches; retries as Java does.

    Each request has the same batch for each of its partitions, which therefore share one sequence.
    """

    def __init__(self, context: Context, tally: Tally, number: int, *, new_on_error: bool = False) -> None:
        self._context = context
        self._tally = tally
        self._partitions = context.partitions_of(number)
        self._new_on_error = new_on_error
        plan = context.plan
        self._pipeline = Pipeline(
            tally,
            records_per_batch=plan.records_per_batch,
            batch_bytes=plan.batch_bytes,
            delivery_timeout_s=plan.delivery_timeout_s,
            most_ahead=1 if new_on_error else MOST_AHEAD,
            new_on_error=new_on_error,
        )
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._producer: Producer | None = None
        self._repairing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_endless = False

    @property
    def is_quiet(self) -> bool:
        return self._pipeline.is_quiet

    async def prepare(self) -> None:
        """Wait for a connection and a producer id, however long that takes."""
        self._start_repair(Then.GO_ON)
        if self._repairing is not None:
            await self._repairing

    def queue_work(self, due_s: float) -> None:
        self._pipeline.queue_batch(due_s)
        self._send_batches()

    def work_endlessly(self, is_endless: bool) -> None:
        """Queue a batch whenever one may be sent, or stop doing so."""
        self._is_endless = is_endless
        self._send_batches()

    def end_run(self, end_s: float) -> None:
        """Stop; count all unacknowledged batches as unfinished. Raises the exception of the task, if any."""
        if self._repairing is not None:
            end_task(self._repairing)
        if self._timer is not None:
            self._timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._pipeline.end_run(end_s)

    def _send_batches(self) -> None:
        connection = self._connection
        if self._repairing is not None or connection is None or self._producer is None:
            return
        if not connection.is_open:
            self._handle_disconnect()
            return
        now_s = self._loop.time()
        while True:
            if self._is_endless and self._pipeline.has_room and not self._pipeline.has_waiting:
                self._pipeline.queue_batch(now_s)
            batch = self._pipeline.next_batch(now_s)
            if batch is None:
                break
            answer = self._context.send_batch(connection, self._partitions, self._producer, batch.sequence)
            answer.add_done_callback(partial(self._handle_answer, connection))
        if self._pipeline.needs_new_epoch:
            self._start_repair(Then.NEW_EPOCH)
        elif now_s < self._pipeline.resume_s and not self._pipeline.is_quiet and self._timer is None:
            self._timer = self._loop.call_at(self._pipeline.resume_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._send_batches()

    def _handle_answer(self, connection: Connection, answer: asyncio.Future[Answer]) -> None:
        if connection is not self._connection or answer.cancelled():
            return
        try:
            frame, arrived_s = answer.result()
            found = self._context.read_answer(frame)
        except (OSError, KafkaProtocolError):
            self._handle_disconnect()
            return
        then = self._pipeline.record_answer(found.error_code, found.throttle_time_ms, arrived_s)
        if then is not Then.GO_ON:
            self._start_repair(then)
        self._send_batches()

    def _handle_disconnect(self) -> None:
        self._tally.connection_errors += 1
        self._drop()
        self._start_repair(self._pipeline.record_disconnect(self._loop.time()))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _start_repair(self, then: Then) -> None:
        if self._repairing is None:
            self._repairing = asyncio.ensure_future(self._repair(then))

    async def _repair(self, then: Then) -> None:
        while True:
            try:
                await self._repair_once(then)
                break
            except (OSError, KafkaProtocolError):
                self._tally.connection_errors += 1
                self._drop()
                then = Then.FIND_LEADER
                await asyncio.sleep(_AGAIN_S)
            except (NoProducerId, LoginRefused):
                self._drop()
                await asyncio.sleep(_REFUSED_AGAIN_S)
        self._repairing = None
        self._send_batches()

    async def _repair_once(self, then: Then) -> None:
        cluster = self._context.cluster
        if then is Then.FIND_LEADER:
            await cluster.refresh()
        wait_s = self._pipeline.resume_s - self._loop.time()
        if self._pipeline.needs_new_epoch:
            if self._new_on_error:
                self._drop()
            await asyncio.sleep(wait_s)
        address = cluster.leader(self._partitions[0])
        if self._connection is not None and (address != self._address or not self._connection.is_open):
            self._drop()
            self._pipeline.record_disconnect(self._loop.time())
        if self._connection is None:
            self._connection = await cluster.connect(address, self._tally)
            self._address = address
        if self._pipeline.needs_new_epoch and not self._new_on_error and self._producer is not None:
            # As in Java: a new epoch without a request, which is not a new id (KIP-360).
            self._producer = self._producer.bumped()
            if self._producer is not None:
                return self._pipeline.restart_sequences()
        if self._producer is None or self._pipeline.needs_new_epoch:
            self._producer = await self._context.new_producer(self._connection, self._tally)
            if self._pipeline.needs_new_epoch:
                self._pipeline.restart_sequences()
