"""Long-lived producers: the well-behaved one, and the one that is made anew after each error.

The second sends a batch and waits for its answer, as programs do that catch the exception of `send().get()`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from pidgate.load.connection import Answer, Connection
from pidgate.load.context import Context, NoProducerId, Producer, end_task, take_id
from pidgate.load.pipeline import MOST_AHEAD, Pipeline, Then
from pidgate.load.plan import Address
from pidgate.load.tally import Tally
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.producer_requests import produce_answer

_AGAIN_S: Final = 0.1
_REFUSED_AGAIN_S: Final = 1.0


class SteadyProducer:
    """One producer id, one partition, five batches unacknowledged at most; retries as Java does."""

    def __init__(self, context: Context, tally: Tally, number: int, *, new_on_error: bool = False) -> None:
        self._context = context
        self._tally = tally
        self._partition = number % context.cluster.partitions
        self._new_on_error = new_on_error
        plan = context.plan
        self._pipeline = Pipeline(
            tally,
            records_per_batch=plan.records_per_batch,
            batch_bytes=plan.batch_bytes,
            delivery_timeout_s=plan.delivery_timeout_s,
            most_ahead=1 if new_on_error else MOST_AHEAD,
            anew_on_error=new_on_error,
        )
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._producer: Producer | None = None
        self._mending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_quiet(self) -> bool:
        return self._pipeline.is_quiet

    async def begin(self) -> None:
        """Wait for a connection and a producer id, however long that takes."""
        self._mend(Then.GO_ON)
        if self._mending is not None:
            await self._mending

    def due(self, due_s: float) -> None:
        """Queue a batch that is due."""
        self._pipeline.due(due_s)
        self._pump()

    def over(self, end_s: float) -> None:
        """End, whatever is in flight. Raises what its task ended with."""
        if self._mending is not None:
            end_task(self._mending)
        if self._timer is not None:
            self._timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._pipeline.over(end_s)

    def _pump(self) -> None:
        connection = self._connection
        if self._mending is not None or connection is None or self._producer is None:
            return
        if not connection.is_open:
            self._lost()
            return
        now_s = self._loop.time()
        while (batch := self._pipeline.next_batch(now_s)) is not None:
            answer = self._context.send_batch(connection, (self._partition,), self._producer, batch.sequence)
            answer.add_done_callback(partial(self._answered, connection))
        if self._pipeline.must_begin_anew:
            self._mend(Then.BEGIN_ANEW)
        elif now_s < self._pipeline.resume_s and not self._pipeline.is_quiet and self._timer is None:
            self._timer = self._loop.call_at(self._pipeline.resume_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._pump()

    def _answered(self, connection: Connection, answer: asyncio.Future[Answer]) -> None:
        if connection is not self._connection or answer.cancelled():
            return
        try:
            frame, arrived_s = answer.result()
            found = produce_answer(frame)
        except (OSError, KafkaProtocolError):
            self._lost()
            return
        then = self._pipeline.answered(found.error_code, found.throttle_time_ms, arrived_s)
        if then is not Then.GO_ON:
            self._mend(then)
        self._pump()

    def _lost(self) -> None:
        self._tally.connection_errors += 1
        self._drop()
        self._mend(self._pipeline.disconnected(self._loop.time()))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _mend(self, then: Then) -> None:
        if self._mending is None:
            self._mending = asyncio.ensure_future(self._make_good(then))

    async def _make_good(self, then: Then) -> None:
        while True:
            try:
                await self._once(then)
                break
            except (OSError, KafkaProtocolError):
                self._tally.connection_errors += 1
                self._drop()
                then = Then.ASK_WHERE
                await asyncio.sleep(_AGAIN_S)
            except (NoProducerId, LoginRefused):
                self._drop()
                await asyncio.sleep(_REFUSED_AGAIN_S)
        self._mending = None
        self._pump()

    async def _once(self, then: Then) -> None:
        cluster = self._context.cluster
        if then is Then.ASK_WHERE:
            await cluster.refresh()
        wait_s = self._pipeline.resume_s - self._loop.time()
        if self._pipeline.must_begin_anew:
            if self._new_on_error:
                self._drop()
            await asyncio.sleep(wait_s)
        address = cluster.leader(self._partition)
        if self._connection is not None and (address != self._address or not self._connection.is_open):
            self._drop()
            self._pipeline.disconnected(self._loop.time())
        if self._connection is None:
            self._connection = await cluster.connect(address, self._tally)
            self._address = address
        if self._pipeline.must_begin_anew and not self._new_on_error and self._producer is not None:
            # As Java does: a new epoch, which needs nobody's leave and is no new id (KIP-360).
            self._producer = self._producer.bumped()
            if self._producer is not None:
                return self._pipeline.began_anew()
        if self._producer is None or self._pipeline.must_begin_anew:
            self._producer = await take_id(self._connection, self._tally)
            self._tally.ids += 1
            if self._pipeline.must_begin_anew:
                self._pipeline.began_anew()
