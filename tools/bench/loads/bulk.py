"""Large batches as fast as they go, to the broker or from it: a thread with blocking sockets per client.

Throughput is what was acknowledged (or received in whole batches) between two moments; the cost of the
watched process is read at the same two moments.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pidgate.load.plan import Address
from pidgate.load.prebuilt import FetchFrame, LoadError, check_produce_answer, read_fetch_answer
from tools.bench.loads.client import (
    CLIENT_ID,
    FAILURES,
    Through,
    connect,
    new_producer_id,
    produce_frame,
    record_batch,
)
from tools.bench.loads.paced import latency_summary
from tools.bench.process_cost import cost_of_watched

# What an idempotent producer may have in flight.
_IN_FLIGHT = 5
_INBOX_BYTES = 64 << 20
_READY_WITHIN_S = 60.0
_STARTED_TOGETHER = 10
"""Two hundred at once keep a broker from its own heartbeat, and it is fenced."""


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """Number of clients, size of each batch, duration."""

    clients: int
    partitions_each: int
    records: int
    record_bytes: int
    acks: int
    warmup_s: float
    measure_s: float


class Client(ABC):
    """A thread that works until it has to stop; `done` grows by (finished_ns, latency_ns, payload bytes)."""

    def __init__(self) -> None:
        self.done: list[tuple[int, int | None, int]] = []
        """Without a latency where this client has no request of its own."""
        self.failure: Exception | None = None
        self.ready = threading.Event()
        """Set once it has what it needs to send or receive, or has failed."""
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def work(self) -> None:
        """Send and receive until `stopping` is set. Raises what FAILURES holds."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds; its work is over."""

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except FAILURES as error:
            self.failure = error
            self.ready.set()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(timeout=30)
        self.close()


class _RawClient(Client):
    """A connection of our own."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.connection = connect(address)
        self.ready.set()

    def close(self) -> None:
        self.connection.close()


class _BulkProducer(_RawClient):
    def __init__(self, through: Through, partition: int, plan: BulkPlan) -> None:
        super().__init__(through.address)
        batch = record_batch(new_producer_id(self.connection), plan.records, plan.record_bytes)
        # As many frames as are in flight: one that the kernel still holds must not be patched.
        self._frames = [
            produce_frame(through.topic_id, [partition], batch, acks=plan.acks) for _ in range(_IN_FLIGHT)
        ]
        self._payload_bytes = plan.records * plan.record_bytes

    def work(self) -> None:
        sent_ns: deque[int] = deque()
        inbox = bytearray(4096)
        number = 0
        while not (self.stopping.is_set() and not sent_ns):
            while len(sent_ns) < _IN_FLIGHT and not self.stopping.is_set():
                frame = self._frames[number % _IN_FLIGHT]
                frame.patch(number, number)
                sent_ns.append(time.monotonic_ns())
                self.connection.send(frame.buffer)
                number += 1
            answer = self.connection.frame_into(inbox)
            check_produce_answer(answer, number - len(sent_ns), 1)
            now_ns = time.monotonic_ns()
            self.done.append((now_ns, now_ns - sent_ns.popleft(), self._payload_bytes))


class _BulkConsumer(_RawClient):
    def __init__(self, through: Through, partitions: Sequence[int], plan: BulkPlan) -> None:
        super().__init__(through.address)
        # 1 MiB is the default of every client's max.partition.fetch.bytes.
        self._frame = FetchFrame(CLIENT_ID, through.topic_id, partitions, partition_max_bytes=1 << 20)
        self._partitions = partitions
        self._record_bytes = plan.record_bytes

    def work(self) -> None:
        inbox = bytearray(_INBOX_BYTES)
        offsets = dict.fromkeys(self._partitions, 0)
        number = 0
        while not self.stopping.is_set():
            self._frame.patch(number, list(offsets.values()))
            sent_ns = time.monotonic_ns()
            self.connection.send(self._frame.buffer)
            got = read_fetch_answer(self.connection.frame_into(inbox), number)
            now_ns = time.monotonic_ns()
            records = sum(partition.records for partition in got.values())
            for partition, fetched in got.items():
                if fetched.records:
                    # Begin again before the end, where a Fetch would wait for more.
                    at_end = fetched.next_offset >= fetched.high_watermark
                    offsets[partition] = 0 if at_end else fetched.next_offset
            self.done.append((now_ns, now_ns - sent_ns, records * self._record_bytes))
            number += 1


def run_bulk_produce(through: Through, plan: BulkPlan) -> dict[str, float]:
    """Each client produces to a partition of its own."""
    clients = [_BulkProducer(through, n, plan) for n in range(plan.clients)]
    return measured_work(clients, plan.warmup_s, plan.measure_s, through.watch)


def run_bulk_fetch(through: Through, plan: BulkPlan) -> dict[str, float]:
    """Each client reads its own partitions over and over."""
    each = plan.partitions_each
    clients = [_BulkConsumer(through, range(n * each, (n + 1) * each), plan) for n in range(plan.clients)]
    return measured_work(clients, plan.warmup_s, plan.measure_s, through.watch)


def measured_work(
    clients: Sequence[Client], warmup_s: float, measure_s: float, watch: int | None
) -> dict[str, float]:
    """Let all of them work, and return what they did behind the warm-up. Raises LoadError."""
    for first in range(0, len(clients), _STARTED_TOGETHER):
        together = clients[first : first + _STARTED_TOGETHER]
        for client in together:
            client.start()
        for client in together:
            if not client.ready.wait(_READY_WITHIN_S):
                raise LoadError(f"a client was not ready in {_READY_WITHIN_S:.0f} s")
    time.sleep(warmup_s)
    before = cost_of_watched(watch)
    from_ns = time.monotonic_ns()
    time.sleep(measure_s)
    spent = cost_of_watched(watch) - before
    to_ns = time.monotonic_ns()
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.stop()
    for client in clients:
        if client.failure:
            raise LoadError(str(client.failure)) from client.failure
    done = [entry for client in clients for entry in client.done if from_ns <= entry[0] < to_ns]
    if not done:
        raise LoadError("nothing was answered")
    latencies = [latency_ns for _, latency_ns, _ in done if latency_ns is not None]
    return {
        "requests": len(done),
        "bytes": sum(payload_bytes for _, _, payload_bytes in done),
        "seconds": (to_ns - from_ns) / 1e9,
        **(latency_summary(latencies) if latencies else {}),
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def fill(address: Address, topic_id: bytes, partitions: int, plan: BulkPlan, batches: int) -> None:
    """Write `batches` batches of the plan to each partition, for consumers to read."""
    inbox = bytearray(4096)
    with connect(address) as connection:
        batch = record_batch(new_producer_id(connection), plan.records, plan.record_bytes)
        for partition in range(partitions):
            frame = produce_frame(topic_id, [partition], batch, acks=1)
            for number in range(batches):
                frame.patch(number, number)
                connection.send(frame.buffer)
                check_produce_answer(connection.frame_into(inbox), number, 1)
