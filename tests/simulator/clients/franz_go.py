"""The franz-go producer, `kgo`: `sink.go`, with `producer.go` and `txn.go` in franz_go_id.py.

A sink of each node takes one batch of each partition into a request; Produce has a connection of its own. Only a
partition's first batch is acted upon: after an error all are sent again from there, once the leaders have been asked
for, which happens every 5 s at most. Before a first success there is one request in flight, then four.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, ClassVar

from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Batch, Wait
from tests.simulator.clients.franz_go_answers import Answers, Sink
from tests.simulator.clients.franz_go_buffers import RecBuf
from tests.simulator.clients.franz_go_id import FranzGoId
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings, Times
from tests.simulator.clients.turns import NEVER, Trace

_RETRY_S, _RETRY_MAX_S = 0.25, 5.0
_PRODUCE_S = 2.0
"""How much longer than others a Produce may take: its own time-out is added to the overhead of all."""


class FranzGoProducer(Answers):
    """franz-go 1.2x, idempotent or transactional."""

    family = "franz-go"
    software = "kgo"
    newest_api_versions = 4
    times = Times(
        request_s=10.0,
        delivery_s=NEVER,
        retry_backoff_s=_RETRY_S,
        retry_backoff_max_s=_RETRY_MAX_S,
        reconnect_backoff_s=0.0,
        reconnect_backoff_max_s=0.0,
        metadata_backoff_s=5.0,
        connect_s=10.0,
        max_block_s=NEVER,
        transaction_s=40.0,
        linger_s=0.01,
    )
    newest: ClassVar[dict[int, int]] = {
        frames.PRODUCE: 13,
        frames.METADATA: 13,
        frames.FIND_COORDINATOR: 6,
        frames.INIT_PRODUCER_ID: 5,
        frames.ADD_PARTITIONS: 3,
        frames.END_TXN: 5,
    }

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.buffers: dict[int, RecBuf] = {}
        self.id = FranzGoId(self)
        self._sinks: dict[int, Sink] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: list[asyncio.Future[None]] = []

    # ---- the application -------------------------------------------------------------------------------

    async def begin(self) -> str:
        return await self.id.begin()

    async def commit(self) -> str:
        return await self.id.end(commit=True)

    async def abort(self) -> str:
        return await self.id.end(commit=False)

    def refuses_to_send(self) -> str:
        return self.id.refuses_to_send()

    def enqueue(self, batch: Batch) -> None:
        buffer = self.buffers.get(batch.partition)
        if buffer is None:
            buffer = self.buffers[batch.partition] = RecBuf(batch.partition)
            buffer.needs_reset = True
        buffer.batches.append(batch)

    def hang_up(self, *, at_once: bool) -> None:
        super().hang_up(at_once=at_once)
        for task in self._tasks:
            task.cancel()
        for sink in self._sinks.values():
            self.drop(sink.node, at_once=at_once)

    # ---- sinks -----------------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        self.serve_metadata(now_s)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()
        for partition, buffer in self.buffers.items():
            if buffer.batches and self.id.is_aborting and buffer.in_flight == 0:
                self.fail_buffer(buffer, "aborted")
            if buffer.batches and partition not in self.leaders:
                self.request_metadata()
        for node_id in sorted({leader[0] for leader in self.leaders.values()}):
            sink = self._sinks.get(node_id)
            if sink is None or sink.node.address != self.nodes[node_id].address:
                sink = self._sinks[node_id] = Sink(Node(node_id, self.nodes[node_id].address))
            while self._produce(sink, now_s):
                pass

    def _produce(self, sink: Sink, now_s: float) -> bool:
        """`sink.produce`: one more request, if there may be one."""
        node = sink.node
        buffers = self._ready(sink, now_s)
        if not buffers or sink.in_flight >= sink.slots or sink.is_adding:
            return False
        if now_s < sink.backoff_until_s:
            self.wake_at(sink.backoff_until_s)
            return False
        if not self.id.usable():
            return False
        if not node.is_up:
            self.connect(node, now_s)
            return False
        if node.throttled_until_s > now_s:
            self.wake_at(node.throttled_until_s)
            return False
        held = self.id.held
        taken = [(buffer, buffer.take(node.node_id, *held)) for buffer in buffers]
        sink.start += 1
        sink.in_flight += 1
        new = [buffer for buffer in buffers if not buffer.is_added]
        if self.id.is_on and not self.id.is_v2 and new:
            for buffer in new:
                buffer.is_added = True
            sink.is_adding = True
            self.spawn(self._add_and_send(sink, taken, new, held))
        else:
            self._send(sink, taken, held)
        return True

    def _ready(self, sink: Sink, now_s: float) -> list[RecBuf]:
        mine = [
            buffer
            for partition, buffer in self.buffers.items()
            if partition in self.leaders and self.leaders[partition][0] == sink.node.node_id
        ]
        if not mine:
            return []
        first = sink.start % len(mine)
        ready: list[RecBuf] = []
        for buffer in mine[first:] + mine[:first]:
            if not buffer.may_go(sink.node.node_id):
                continue
            batch = buffer.batches[buffer.drained]
            lingers = buffer.drained == len(buffer.batches) - 1 and batch.sent_s < 0
            if lingers and now_s < batch.queued_s + self.t.linger_s:
                self.wake_at(batch.queued_s + self.t.linger_s)
            else:
                ready.append(buffer)
        return ready

    async def _add_and_send(
        self, sink: Sink, taken: list[tuple[RecBuf, Batch]], new: list[RecBuf], held: tuple[int, int]
    ) -> None:
        """`doTxnReq`, then the Produce without what could not be added."""
        codes = await self.id.add_partitions(tuple(sorted(buffer.partition for buffer in new)))
        sink.is_adding = False
        bad = {
            partition: code
            for partition, code in codes.items()
            if code not in (0, errors.TRANSACTION_ABORTABLE)
        }
        fatal = next((code for code in bad.values() if code >= 0 and code not in errors.RETRIABLE), 0)
        left = []
        for buffer, batch in taken:
            if fatal or buffer.partition in bad:
                if buffer in new:
                    buffer.is_added = False
                buffer.rewind()
                buffer.landed()
            else:
                left.append((buffer, batch))
        if fatal:
            self.id.fail(held, errors.words(fatal))
            self.fail_all(errors.words(fatal))
        if left and sink.node.is_up:
            self._send(sink, left, held)
            return
        for buffer, _ in left:
            buffer.rewind()
            buffer.landed()
        sink.in_flight -= 1
        self.back_off(sink)

    def _send(self, sink: Sink, taken: list[tuple[RecBuf, Batch]], held: tuple[int, int]) -> None:
        by_partition = {buffer.partition: (buffer, batch) for buffer, batch in taken}

        def answered(answer: bytes | None, version: int) -> None:
            sink.in_flight -= 1
            if answer is None:
                for buffer, batch in taken:
                    batch.is_uncertain = True
                    self.cut_off(buffer, batch)
                self.back_off(sink)
            else:
                self.answered(sink, by_partition, held, version, answer)
            for buffer, _ in taken:
                buffer.landed()
            self.wake()

        batches = [batch for _, batch in taken]
        self.produce(sink.node, batches, answered, self.t.request_s * _PRODUCE_S)

    # ---- nodes -----------------------------------------------------------------------------------------

    def learn(self, found: frames.Leaders) -> None:
        super().learn(found)
        for buffer in self.buffers.values():
            buffer.failing = False

    def throttled(self, node: Node, throttle_ms: int) -> None:
        """Its next request waits; those in flight have no more time for that."""
        until_s = self.now_s + throttle_ms / 1000
        if throttle_ms > 0 and until_s > node.throttled_until_s:
            node.throttled_until_s = until_s
            self.told.waits.append(Wait("throttle", self.now_s, until_s))

    def node_lost(self, node: Node, why: str) -> None:
        if why.startswith("cannot connect"):
            node.retry_at_s = self.now_s + self.retry_s(node.failures)
            self.request_metadata()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A goroutine; it ends with the client."""
        task = self.loop.create_task(work, context=self.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def any_node(self) -> Node | None:
        """A node that can be asked; connects, if there is none."""
        node = self.least_loaded(self.now_s)
        return None if node is None else await self.reach(node)

    async def reach(self, node: Node) -> Node | None:
        """The node, connected; None when that fails."""
        give_up_s = self.now_s + self.t.connect_s
        while not node.is_up or node.throttled_until_s > self.now_s:
            self.connect(node, self.now_s)
            if node.connection is None and node.dialling is None:
                return None
            if self.now_s >= give_up_s:
                return None
            if node.is_up:
                await asyncio.sleep(node.throttled_until_s - self.now_s)
            else:
                waiting: asyncio.Future[None] = self.loop.create_future()
                self._waiting.append(waiting)
                await waiting
        return node

    async def ask(self, node: Node, frame: bytes) -> bytes | None:
        """The answer; None when the connection ends before."""
        answer: asyncio.Future[bytes | None] = self.loop.create_future()

        def answered(found: bytes | None) -> None:
            if not answer.done():
                answer.set_result(found)

        if node.connection is None:
            return None
        node.connection.ask(frame, answered)
        return await answer
