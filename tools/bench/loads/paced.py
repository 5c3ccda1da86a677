"""Produce requests at a fixed rate, each sent at its own time, whatever the answers do.

Latency counts from the moment a request was due, so a stall is charged to every request it delays
(no coordinated omission). One thread, blocking sockets, epoll inside select: select takes its time-out in
microseconds where epoll rounds to milliseconds.
"""

import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from pidgate.load.blocking import BlockingConnection
from pidgate.load.prebuilt import LoadError, check_produce_answer
from tools.bench.loads.client import Through, connect, new_producer_id, produce_frame, record_batch
from tools.bench.process_cost import ProcessCost, cost_of_watched
from tools.bench.statistics import percentile

# An idempotent producer has five batches in flight at most; the broker remembers no more.
_IN_FLIGHT = 5
_PATIENCE_S = 30.0
_SHARES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """Plan of the load: `rate_per_s` requests in sum, taken in turns by the producers."""

    producers: int
    rate_per_s: float
    partitions_each: int
    record_bytes: int
    acks: int
    warmup_s: float
    measure_s: float


class Requests(ABC):
    """Requests of one producer, one after the other."""

    payload_bytes: float
    """Of record values, in the mean of all requests."""

    @abstractmethod
    def request(self, number: int) -> bytearray:
        """Return the `number`-th request (from 0, also its correlation id), which the next call changes."""

    @abstractmethod
    def check(self, answer: memoryview, number: int) -> None:
        """Check the answer to a request. Raises LoadError unless it has succeeded."""


class Same(Requests):
    """One batch of one record for each of some partitions, again and again."""

    def __init__(self, topic_id: bytes, partitions: range, producer_id: int, plan: PacedPlan) -> None:
        batch = record_batch(producer_id, 1, plan.record_bytes)
        self.payload_bytes = len(partitions) * plan.record_bytes
        self._frame = produce_frame(topic_id, partitions, batch, acks=plan.acks)
        self._partitions = len(partitions)

    def request(self, number: int) -> bytearray:
        self._frame.patch(number, number)
        return self._frame.buffer

    def check(self, answer: memoryview, number: int) -> None:
        check_produce_answer(answer, number, self._partitions)


class Producer:
    """A connection, its requests, and what is due or in flight on it."""

    __slots__ = ("_connection", "_due", "_inbox", "_sent", "in_flight", "late_ns", "requests")

    def __init__(self, connection: BlockingConnection, requests: Requests) -> None:
        self._connection = connection.socket
        self.requests = requests
        self._sent = 0
        self._due: deque[int] = deque()
        self._inbox = bytearray()
        self.in_flight: deque[tuple[int, int]] = deque()
        self.late_ns: list[int] = []

    def fileno(self) -> int:
        return self._connection.fileno()

    def request_due(self, due_ns: int) -> None:
        self._due.append(due_ns)
        self._send_due()

    def _send_due(self) -> None:
        while self._due and len(self.in_flight) < _IN_FLIGHT:
            due_ns = self._due.popleft()
            self._connection.sendall(self.requests.request(self._sent))
            self.in_flight.append((self._sent, due_ns))
            self.late_ns.append(time.monotonic_ns() - due_ns)
            self._sent += 1

    def receive(self) -> list[tuple[int, int]]:
        """Take what has arrived; return (due_ns, latency_ns) of each request it answers. Raises LoadError."""
        data = self._connection.recv(65536, socket.MSG_DONTWAIT)
        now_ns = time.monotonic_ns()
        if not data:
            raise LoadError("connection closed by the peer")
        self._inbox += data
        answered = []
        while len(self._inbox) >= 4:
            size = struct.unpack_from(">i", self._inbox)[0]
            if len(self._inbox) < 4 + size:
                break
            correlation_id, due_ns = self.in_flight.popleft()
            self.requests.check(memoryview(bytes(self._inbox[4 : 4 + size])), correlation_id)
            del self._inbox[: 4 + size]
            answered.append((due_ns, now_ns - due_ns))
        self._send_due()
        return answered

    @property
    def is_quiet(self) -> bool:
        return not self.in_flight and not self._due

    def close(self) -> None:
        self._connection.close()


def run_paced(through: Through, plan: PacedPlan) -> dict[str, float]:
    """Send the plan; what it took, with the cost of the watched process."""
    poll = select.epoll()
    each, producers = plan.partitions_each, []
    for first in range(0, plan.producers * each, each):
        connection = connect(through.address, through.login)
        producer_id = new_producer_id(connection)
        requests = Same(through.topic_id, range(first, first + each), producer_id, plan)
        producers.append(Producer(connection, requests))
    return send_paced(producers, poll, plan.rate_per_s, plan.warmup_s, plan.measure_s, through.watch)


def send_paced(
    producers: Sequence[Producer],
    poll: select.epoll,
    rate_per_s: float,
    warmup_s: float,
    measure_s: float,
    watch: int | None,
) -> dict[str, float]:
    """Let the producers send in turns, `rate_per_s` requests in sum. Raises LoadError, OSError.

    `poll` was made before the producers' connections: select(), which waits for less than a millisecond, takes no
    descriptor above 1,023.
    """
    by_fd = {producer.fileno(): producer for producer in producers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    warmup, total = (round(rate_per_s * s) for s in (warmup_s, warmup_s + measure_s))
    interval_ns = 1e9 / rate_per_s
    start_ns = time.monotonic_ns() + 100_000_000
    measured_from_ns = start_ns + round(warmup * interval_ns)
    next_request = 0
    latencies: list[int] = []
    before = ProcessCost(0, 0, 0)

    def receive(timeout_s: float) -> None:
        if select.select([poll], [], [], timeout_s)[0]:
            for fd, _ in poll.poll(0):
                for due_ns, latency_ns in by_fd[fd].receive():
                    if due_ns >= measured_from_ns:
                        latencies.append(latency_ns)

    while next_request < total:
        due_ns = start_ns + round(next_request * interval_ns)
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            receive(wait_ns / 1e9)
            continue
        if next_request == warmup:
            before = cost_of_watched(watch)
            for producer in producers:
                producer.late_ns.clear()
        producers[next_request % len(producers)].request_due(due_ns)
        next_request += 1
    deadline = time.monotonic() + _PATIENCE_S
    while not all(producer.is_quiet for producer in producers):
        if time.monotonic() > deadline:
            raise LoadError(f"requests unanswered after {_PATIENCE_S:.0f} s")
        receive(0.1)
    seconds = (time.monotonic_ns() - measured_from_ns) / 1e9
    spent = cost_of_watched(watch) - before
    late_ns = sorted(late for producer in producers for late in producer.late_ns)
    for producer in producers:
        producer.close()
    return {
        "requests": total - warmup,
        "bytes": (total - warmup) * mean(producer.requests.payload_bytes for producer in producers),
        "seconds": seconds,
        **latency_summary(latencies),
        "late_p99_ms": percentile(late_ns, 0.99) / 1e6,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def latency_summary(latencies_ns: list[int]) -> dict[str, float]:
    """Percentiles in ms of latencies in ns."""
    ordered = sorted(latencies_ns)
    return {name: percentile(ordered, share) / 1e6 for name, share in _SHARES.items()}
