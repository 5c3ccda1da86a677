"""Java's producer, as far as kafka-python's is a port of it: batches by partition, and a TransactionManager."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from random import Random

from tests.simulator.clients.batches import Batch, State
from tests.simulator.clients.node import Node
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.transaction_manager import TransactionManager
from tests.simulator.clients.turns import Trace


class Accumulator(ModelProducer):
    """Holds batches between application and request (`RecordAccumulator`)."""

    transactions: TransactionManager

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.queues: dict[int, deque[Batch]] = {}
        """By partition: to be sent, retries first."""

    @abstractmethod
    def is_ready(self, node: Node, now_s: float) -> bool:
        """Whether it can be sent something now."""

    # ---- the application -------------------------------------------------------------------------------

    async def start(self) -> str:
        self.wake()
        return await self.transactions.init() if self.transactional_id is not None else ""

    async def begin(self) -> str:
        return self.transactions.begin()

    async def commit(self) -> str:
        return await self.transactions.complete(commit=True)

    async def abort(self) -> str:
        return await self.transactions.complete(commit=False)

    def refuses_to_send(self) -> str:
        return self.transactions.refuses_to_send()

    def enqueue(self, batch: Batch) -> None:
        self.transactions.add_partition(batch.partition)
        self.queues.setdefault(batch.partition, deque()).append(batch)

    # ---- the ends of batches ---------------------------------------------------------------------------

    def expired(self, now_s: float) -> list[Batch]:
        """Those whose time is over, also in flight; in flight no longer, and in no queue."""
        found: list[Batch] = []
        for batch in self.open:
            if batch.queued_s + self.t.delivery_s > now_s:
                self.wake_at(batch.queued_s + self.t.delivery_s)
                break
            if batch.state is not State.IN_FLIGHT:
                self.queues[batch.partition].remove(batch)
            found.append(batch)
        return found

    def end_fatally(self) -> None:
        """Nothing of it has a use any more."""
        self.fail_all(self.told.fatal)
        self.queues.clear()
        self.transactions.requests.drop_all(self.told.fatal)

    def led_by(self, node: Node) -> list[int]:
        """Return the partitions that a node leads, in order."""
        return sorted(partition for partition, leader in self.leaders.items() if leader[0] == node.node_id)
