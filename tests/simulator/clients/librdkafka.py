"""The librdkafka producer, and all bindings of it: `rdkafka_broker.c`, `rdkafka_request.c`, `rdkafka_partition.c`.

It retries in a pipeline, a success acknowledges all that waits before it, and it drains a partition before another
try, a new leader or a new epoch. One request holds one batch. It does not look at throttle_time_ms.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import ClassVar

from pidgate.load.plan import Address
from tests.simulator.clients import frames
from tests.simulator.clients.batches import Batch, State
from tests.simulator.clients.cluster import MOST_IN_FLIGHT
from tests.simulator.clients.librdkafka_coordinator import COORDINATOR
from tests.simulator.clients.librdkafka_id import ProducerId
from tests.simulator.clients.librdkafka_results import (
    PURGED,
    TIMED_OUT,
    TIMED_OUT_QUEUE,
    TRANSPORT,
    Results,
)
from tests.simulator.clients.librdkafka_transactions import LibrdkafkaTransactions
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings, Times
from tests.simulator.clients.toppar import NO_ID, Toppar
from tests.simulator.clients.turns import Trace

_SCAN_S = 1.0
_LATE_S = 0.1
"""What a batch whose time is over still gets."""
_MOST_UNSENT = 1
"""queue.buffering.backpressure.threshold."""


class LibrdkafkaProducer(Results):
    """librdkafka 2.x, idempotent or transactional."""

    family = "librdkafka"
    software = "librdkafka"
    times = Times(
        request_s=60.0,
        delivery_s=300.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=1.0,
        reconnect_backoff_s=0.1,
        reconnect_backoff_max_s=10.0,
        metadata_backoff_s=0.1,
        connect_s=30.0,
        max_block_s=60.0,
        linger_s=0.005,
    )
    newest: ClassVar[dict[int, int]] = {
        frames.PRODUCE: 10,
        frames.METADATA: 12,
        frames.FIND_COORDINATOR: 2,
        frames.INIT_PRODUCER_ID: 4,
        frames.ADD_PARTITIONS: 0,
        frames.END_TXN: 1,
    }

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.toppars: dict[int, Toppar] = {}
        self.id = ProducerId(self)
        self.transactions = LibrdkafkaTransactions(self)
        self._began_s = self.now_s
        self._unsent: dict[Node, deque[tuple[Toppar, Batch]]] = {}
        """Requests that are made and not sent, by node."""
        self._first: dict[Node, int] = {}

    # ---- the application -------------------------------------------------------------------------------

    async def start(self) -> str:
        if self.transactional_id is not None:
            return await self.transactions.init()
        self.id.start(at_once=False)
        return ""

    async def begin(self) -> str:
        return self.transactions.begin()

    async def commit(self) -> str:
        return await self.transactions.commit()

    async def abort(self) -> str:
        return await self.transactions.abort()

    def refuses_to_send(self) -> str:
        return self.transactions.refuses_to_send()

    def enqueue(self, batch: Batch) -> None:
        toppar = self.toppars.get(batch.partition)
        if toppar is None:
            toppar = self.toppars[batch.partition] = Toppar(batch.partition)
        toppar.take_in(batch)
        self.transactions.add_partition(toppar)

    def is_of_no_use(self, why: str) -> None:
        super().is_of_no_use(why)
        self.purge("purged")

    def purge(self, error: str, *, is_abort: bool = False) -> None:
        """Fail what is not on its way; what is gets its own end (`rd_kafka_toppar_purge_queues`)."""
        for toppar in self.toppars.values():
            queue, toppar.queue = toppar.queue, []
            if is_abort:
                toppar.base_id += sum(batch.records for batch in queue)
            for batch in queue:
                self.failed(batch, error)

    # ---- threads of the brokers ------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        self.id.serve(now_s)
        self.transactions.serve(now_s)
        self.serve_metadata(now_s)
        self._scan_timeouts(now_s)
        of_node: dict[Node, list[Toppar]] = {}
        for toppar in self.toppars.values():
            leader = self.leaders.get(toppar.partition)
            if leader is not None:
                of_node.setdefault(self.nodes[leader[0]], []).append(toppar)
            elif toppar.queue:
                self.request_metadata()
        for node, toppars in of_node.items():
            while self._serve_node(node, toppars, now_s):
                pass

    def _serve_node(self, node: Node, toppars: list[Toppar], now_s: float) -> bool:
        """`rd_kafka_broker_produce_toppars`, another partition first each time; then send what was made."""
        self._first[node] = first = (self._first.get(node, -1) + 1) % len(toppars)
        made = [self._serve(toppar, node, now_s) for toppar in toppars[first:] + toppars[:first]]
        return self._send_unsent(node, now_s) or any(made)

    def _scan_timeouts(self, now_s: float) -> None:
        """Once a second: message.timeout.ms, of what is not in flight."""
        if not self.open:
            return
        oldest = next(iter(self.open))
        due_s = oldest.queued_s + self.t.delivery_s
        due_s = self._began_s + _SCAN_S * -(-(due_s - self._began_s) // _SCAN_S)
        if due_s > now_s:
            self.wake_at(due_s)
            return
        self.wake_at(now_s + _SCAN_S)
        timed_out = False
        for toppar in self.toppars.values():
            late = [batch for batch in toppar.queue if batch.queued_s + self.t.delivery_s <= now_s]
            for batch in late:
                toppar.queue.remove(batch)
                self.failed(batch, "timed out")
                timed_out = True
        if timed_out and self.id.usable != NO_ID:
            self.id.bump()

    def _serve(self, toppar: Toppar, node: Node, now_s: float) -> bool:
        """`rd_kafka_toppar_producer_serve`: make a request of the next batch, if one may be made."""
        pid = self.id.usable
        if pid == NO_ID or self.told.fatal or not self.transactions.may_send(toppar):
            return False
        if pid != toppar.pid or toppar.wait_drain:
            self._purge_unsent(toppar)
        if toppar.wait_drain:
            if toppar.in_flight:
                return False
            toppar.wait_drain = False
        unsent = self._unsent.setdefault(node, deque())
        # As it is: requests that may be made, less messages in flight.
        if min(_MOST_UNSENT - len(unsent), MOST_IN_FLIGHT - toppar.in_flight) <= 0 or not toppar.queue:
            return False
        if pid != toppar.pid and not toppar.change_id(pid):
            return False
        if not node.is_up:
            self.connect(node, now_s)
            return False
        first = toppar.queue[0]
        ready_s = max(first.retry_at_s, first.queued_s + self.t.linger_s)
        if ready_s > now_s:
            self.wake_at(ready_s)
            return False
        del toppar.queue[0]
        toppar.number(first)
        first.state = State.IN_FLIGHT
        if toppar.in_flight == 0:
            self.id.toppars_in_flight += 1
        toppar.in_flight += first.records
        unsent.append((toppar, first))
        return True

    def _send_unsent(self, node: Node, now_s: float) -> bool:
        unsent, sent = self._unsent.get(node, ()), False
        while unsent and self.can_ask(node, now_s):
            self._send(node, *self._unsent[node].popleft(), now_s)
            sent = True
        return sent

    def _purge_unsent(self, toppar: Toppar) -> None:
        """`rd_kafka_broker_bufq_purge_by_toppar`."""
        for unsent in self._unsent.values():
            for entry in [entry for entry in unsent if entry[0] is toppar]:
                unsent.remove(entry)
                self.finished(toppar, entry[1], PURGED, was_sent=False)

    def _send(self, node: Node, toppar: Toppar, batch: Batch, now_s: float) -> None:
        def answered(answer: bytes | None, version: int) -> None:
            if answer is None:
                self.finished(toppar, batch, TIMED_OUT if self.lost_by == "timeout" else TRANSPORT)
                return
            (outcome,), _ = self.read_produce(node, answer, version)
            self.finished(toppar, batch, outcome.error_code, outcome.base_offset)

        left_s = batch.queued_s + self.t.delivery_s - now_s
        self.produce(node, (batch,), answered, min(self.t.request_s, max(left_s, _LATE_S)))

    # ---- brokers ---------------------------------------------------------------------------------------

    def throttled(self, node: Node, throttle_ms: int) -> None:
        """It does not look at that."""

    def reconnect_delay_s(self, failures: int) -> float:
        """From one attempt to the next: -25 % to +50 %."""
        most_s = self.t.reconnect_backoff_max_s
        first_s = min(self.t.reconnect_backoff_s * 2.0 ** min(failures, 30), most_s)
        return min(first_s * self.random.uniform(0.75, 1.5), most_s)

    def node_lost(self, node: Node, why: str) -> None:
        unsent = self._unsent.pop(node, deque())
        for toppar, batch in unsent:
            self.finished(toppar, batch, TIMED_OUT_QUEUE if why == "timeout" else TRANSPORT, was_sent=False)
        self.request_metadata()

    def leader_changed(self, partition: int) -> None:
        """What is in flight at the old one comes to its end first."""
        toppar = self.toppars.get(partition)
        if toppar is not None:
            self._purge_unsent(toppar)
            toppar.wait_drain = True

    def learn(self, found: frames.Leaders) -> None:
        super().learn(found)
        self.transactions.hurry()
        self.id.go_on()

    def learn_brokers(self, brokers: dict[int, Address]) -> bool:
        # A bootstrap server becomes the broker with its address.
        for node_id, address in brokers.items():
            for bootstrap_id in [known for known in self.nodes if COORDINATOR < known < 0]:
                node = self.nodes[bootstrap_id]
                if node.address == address and node_id not in self.nodes:
                    del self.nodes[bootstrap_id]
                    node.node_id = node_id
                    self.nodes[node_id] = node
        return super().learn_brokers(brokers)

    def node_for_id(self) -> Node | None:
        """Any broker that can be asked; for a transactional producer its coordinator."""
        if self.transactional_id is not None:
            return self.transactions.reachable_coordinator()
        up = [node for node in self.nodes.values() if self.can_ask(node, self.now_s)]
        return up[self.random.randrange(len(up))] if up else None
