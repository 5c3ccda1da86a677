"""The same loads by a client that many use: librdkafka, through confluent-kafka, as it comes.

Settings are its own, but for those that a load is made of: how long it waits for more records, and that a small record
is a batch of its own. Each client follows Metadata, and has the threads and connections that it wants.
"""

import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pidgate.load.prebuilt import LoadError
from tools.bench.loads.bulk import BulkPlan, Client, measured_work
from tools.bench.loads.client import CLIENT_ID, Through
from tools.bench.loads.paced import PacedPlan

_ONE_POLL: Final = 500
_SHORTEST_POLL_S: Final = 0.001
"""Its own waiting counts whole milliseconds."""
_LEAVES_S: Final = 10.0
_ASKS_S: Final = 10.0


def _settings(through: Through) -> dict[str, Any]:
    host, port = through.address
    return {"bootstrap.servers": f"{host}:{port}", "client.id": CLIENT_ID}


class _Own(Client):
    """A client whose library has exceptions of its own, and connects as soon as it is made."""

    @abstractmethod
    def open(self) -> None:
        """Make the library's client."""

    @abstractmethod
    def go_on(self) -> None:
        """As `work`; raises KafkaException and BufferError, too."""

    def work(self) -> None:
        try:
            self.open()
            self.go_on()
        except (KafkaException, BufferError) as error:
            raise LoadError(str(error)) from error


class _Producer(_Own):
    """Records of one size to its own partitions in turn; idempotent."""

    def __init__(
        self, through: Through, partitions: Sequence[int], record_bytes: int, **settings: Any
    ) -> None:
        super().__init__()
        self._settings = {**_settings(through), "enable.idempotence": True, **settings}
        self._producer: Any = None
        self._topic = through.topic
        self._partitions = deque(partitions)
        self._value = os.urandom(record_bytes)
        self._refused: KafkaError | None = None

    def open(self) -> None:
        self._producer = Producer(self._settings)

    def send(self, late_ns: int) -> None:
        """Queue one record. Raises BufferError where its queue is full, LoadError where one before was refused."""
        if self._refused is not None:
            raise LoadError(f"a record was not delivered: {self._refused}")
        delivered = partial(self._delivered, late_ns)
        self._producer.produce(self._topic, self._value, partition=self._partitions[0], on_delivery=delivered)
        self._partitions.rotate()

    def _delivered(self, late_ns: int, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused = error
            return
        self.ready.set()
        # Its own clock's: a callback comes only when it is polled for.
        latency_ns = late_ns + round(message.latency() * 1e9)
        self.done.append((time.monotonic_ns(), latency_ns, len(self._value)))

    def serve(self, seconds: float) -> None:
        """Wait so long at most, for callbacks."""
        if seconds < _SHORTEST_POLL_S:
            time.sleep(seconds)
            seconds = 0
        self._producer.poll(seconds)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(_LEAVES_S)


class _PacedProducer(_Producer):
    """Each record at its own time, and in a request of its own."""

    def __init__(self, through: Through, number: int, plan: PacedPlan) -> None:
        partitions = range(number * plan.partitions_each, (number + 1) * plan.partitions_each)
        one_each = {"linger.ms": 0, "batch.num.messages": 1, "acks": plan.acks}
        super().__init__(through, partitions, plan.record_bytes, **one_each)
        self._interval_s = plan.producers / plan.rate_per_s
        self._offset_s = self._interval_s * number / plan.producers

    def go_on(self) -> None:
        self.send(0)  # brings Metadata, a producer id and a connection to the leader
        while not self.ready.is_set():
            self.serve(0.1)
        due_s = time.monotonic() + self._offset_s
        while not self.stopping.is_set():
            now_s = time.monotonic()
            if now_s < due_s:
                self.serve(due_s - now_s)
            else:
                self.send(round((now_s - due_s) * 1e9))
                due_s += self._interval_s


class _BulkProducer(_Producer):
    """As many as it takes; linger until a batch is full."""

    def __init__(self, through: Through, number: int, plan: BulkPlan) -> None:
        batch_bytes = plan.records * plan.record_bytes
        queue_kbytes = 10 * batch_bytes // 1000
        settings = {"linger.ms": 50, "acks": plan.acks, "queue.buffering.max.kbytes": queue_kbytes}
        super().__init__(through, [number], plan.record_bytes, **{"batch.size": batch_bytes, **settings})

    def go_on(self) -> None:
        while not self.stopping.is_set():
            try:
                self.send(0)
            except BufferError:
                self.serve(0.01)
            else:
                self.serve(0)


class _BulkConsumer(_Own):
    """All of its partitions without a group, each from its beginning again and again.

    Each starts at another part of its records: at the end of all of them at once it would pause for a second.
    """

    def __init__(self, through: Through, partitions: Sequence[int]) -> None:
        super().__init__()
        settings = {"group.id": CLIENT_ID, "enable.auto.commit": False, "enable.partition.eof": True}
        self._settings = _settings(through) | settings
        self._consumer: Any = None
        self._topic = through.topic
        self._partitions = partitions

    def go_on(self) -> None:
        self._consumer.assign([self._start(part, number) for number, part in enumerate(self._partitions)])
        while not self.stopping.is_set():
            received_bytes = 0
            for message in self._consumer.consume(_ONE_POLL, 0.1):
                error = message.error()
                if error is None:
                    received_bytes += len(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._consumer.seek(TopicPartition(self._topic, message.partition(), 0))
                else:
                    raise LoadError(str(error))
            if received_bytes:
                self.ready.set()
            self.done.append((time.monotonic_ns(), None, received_bytes))

    def open(self) -> None:
        self._consumer = Consumer(self._settings)

    def _start(self, partition: int, number: int) -> TopicPartition:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_ASKS_S)
        return TopicPartition(self._topic, partition, end * number // len(self._partitions))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def run_paced(through: Through, plan: PacedPlan) -> dict[str, float]:
    """Each client's share of the rate; every record is a request."""
    clients = [_PacedProducer(through, n, plan) for n in range(plan.producers)]
    return measured_work(clients, plan.warmup_s, plan.measure_s, through.watch)


def run_produce(through: Through, plan: BulkPlan) -> dict[str, float]:
    """Full batches, each client's to a partition of its own."""
    return _bulk([_BulkProducer(through, n, plan) for n in range(plan.clients)], plan, through)


def run_fetch(through: Through, plan: BulkPlan) -> dict[str, float]:
    """Each client its own partitions."""
    each = plan.partitions_each
    clients = [_BulkConsumer(through, range(n * each, (n + 1) * each)) for n in range(plan.clients)]
    return _bulk(clients, plan, through)


def _bulk(clients: Sequence[Client], plan: BulkPlan, through: Through) -> dict[str, float]:
    """Without what is of requests: nobody outside the client knows how many it made."""
    measured = measured_work(clients, plan.warmup_s, plan.measure_s, through.watch)
    return {name: value for name, value in measured.items() if name not in {"requests", "wakeups"}}
