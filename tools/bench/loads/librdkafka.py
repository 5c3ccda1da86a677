"""The same loads by a real client: librdkafka, through confluent-kafka, with its default settings.

The exceptions define the load: linger, and that a small record is a batch of its own. Each client follows Metadata,
and has its own threads and connections.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pidgate.load.tally import Latency
from tools.bench.loads.client import CLIENT_ID, FAILURES, LoadError, Through, latency_summary
from tools.bench.loads.played import LoadPlan
from tools.bench.process_cost import cost_of_watched

_READY_WITHIN_S: Final = 60.0
_STARTED_TOGETHER: Final = 10
"""Two hundred in one moment keep a broker from its own heartbeat, and it is fenced."""
_ONE_POLL: Final = 500
_SHORTEST_POLL_S: Final = 0.001
"""Its own waiting counts whole milliseconds."""
_LEAVES_S: Final = 10.0
_ASKS_S: Final = 10.0


def _settings(through: Through) -> dict[str, Any]:
    host, port = through.address
    return {"bootstrap.servers": f"{host}:{port}", "client.id": CLIENT_ID}


class _Client(ABC):
    """A thread that works until `stopping`; `done` grows by (finished_ns, latency_ns, payload bytes).

    Without a latency where a client has no request of its own.
    """

    def __init__(self) -> None:
        self.done: list[tuple[int, int | None, int]] = []
        self.failure: Exception | None = None
        self.ready = threading.Event()
        """Set once it can send or receive, or has failed."""
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    @abstractmethod
    def open(self) -> None:
        """Make the library's client, which connects immediately."""

    @abstractmethod
    def send_or_receive(self) -> None:
        """Work until `stopping` is set. Raises KafkaException, BufferError, LoadError."""

    @abstractmethod
    def close(self) -> None:
        """Close the library's client."""

    def _work(self) -> None:
        try:
            self.open()
            self.send_or_receive()
        except (KafkaException, BufferError, *FAILURES) as error:
            self.failure = error
            self.ready.set()


class _Producer(_Client):
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

    def __init__(self, through: Through, number: int, plan: LoadPlan) -> None:
        partitions = range(number * plan.partitions_each, (number + 1) * plan.partitions_each)
        one_each = {"linger.ms": 0, "batch.num.messages": 1, "acks": plan.acks}
        super().__init__(through, partitions, plan.record_bytes, **one_each)
        self._interval_s = plan.clients / plan.rate_per_s
        self._offset_s = self._interval_s * number / plan.clients

    def send_or_receive(self) -> None:
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

    def __init__(self, through: Through, number: int, plan: LoadPlan) -> None:
        batch_bytes = plan.records * plan.record_bytes
        queue_kbytes = 10 * batch_bytes // 1000
        settings = {"linger.ms": 50, "acks": plan.acks, "queue.buffering.max.kbytes": queue_kbytes}
        super().__init__(through, [number], plan.record_bytes, **{"batch.size": batch_bytes, **settings})

    def send_or_receive(self) -> None:
        while not self.stopping.is_set():
            try:
                self.send(0)
            except BufferError:
                self.serve(0.01)
            else:
                self.serve(0)


class _BulkConsumer(_Client):
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

    def send_or_receive(self) -> None:
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


def run_paced(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Each client's share of the rate; every record is a request."""
    return _measured([_PacedProducer(through, n, plan) for n in range(plan.clients)], plan, through)


def run_produce(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Full batches, each client's to a partition of its own."""
    return _bulk([_BulkProducer(through, n, plan) for n in range(plan.clients)], plan, through)


def run_fetch(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Each client its own partitions."""
    each = plan.partitions_each
    clients = [_BulkConsumer(through, range(n * each, (n + 1) * each)) for n in range(plan.clients)]
    return _bulk(clients, plan, through)


def _bulk(clients: Sequence[_Client], plan: LoadPlan, through: Through) -> dict[str, float]:
    """Leave out quantities per request: only the client knows how many it made."""
    measured = _measured(clients, plan, through)
    return {name: value for name, value in measured.items() if name not in {"requests", "wakeups"}}


def _measured(clients: Sequence[_Client], plan: LoadPlan, through: Through) -> dict[str, float]:
    """Let all clients work, and return what they did after the warm-up. Raises LoadError."""
    for first in range(0, len(clients), _STARTED_TOGETHER):
        together = clients[first : first + _STARTED_TOGETHER]
        for client in together:
            client.thread.start()
        for client in together:
            if not client.ready.wait(_READY_WITHIN_S):
                raise LoadError(f"a client was not ready in {_READY_WITHIN_S:.0f} s")
    time.sleep(plan.warmup_s)
    before, from_ns = cost_of_watched(through.watch), time.monotonic_ns()
    time.sleep(plan.measure_s)
    spent, to_ns = cost_of_watched(through.watch) - before, time.monotonic_ns()
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.thread.join(timeout=30)
        client.close()
        if client.failure:
            raise LoadError(str(client.failure)) from client.failure
    done = [entry for client in clients for entry in client.done if from_ns <= entry[0] < to_ns]
    if not done:
        raise LoadError("nothing was answered")
    latency = Latency()
    for _, latency_ns, _ in done:
        if latency_ns is not None:
            latency.record(latency_ns / 1e9)
    return {
        "requests": len(done),
        "bytes": sum(payload_bytes for _, _, payload_bytes in done),
        "seconds": (to_ns - from_ns) / 1e9,
        **(latency_summary(latency) if latency.count else {}),
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }
