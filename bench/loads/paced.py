"""Produce requests at a fixed rate, each sent at its own time, whatever the answers do.

Latency counts from the moment a request was due, so a stall is charged to every request it delays
(no coordinated omission). One thread, blocking sockets, epoll inside select: select takes its time-out in
microseconds where epoll rounds to milliseconds.
"""

import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass

from bench.loads.client import Through, connect, new_producer_id, produce_frame, record_batch
from bench.process_cost import ProcessCost, cost_of_watched
from bench.statistics import percentile
from pidgate.load.prebuilt import LoadError, check_produce_answer

# An idempotent producer has five batches in flight at most; the broker remembers no more.
_IN_FLIGHT = 5
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """What is sent: `rate_per_s` requests in sum, taken in turns by the producers."""

    producers: int
    rate_per_s: float
    partitions_each: int
    record_bytes: int
    acks: int
    warmup_s: float
    measure_s: float


class _Producer:
    """A connection with its producer id, its frame and what is due or in flight on it."""

    __slots__ = ("_connection", "_due", "_frame", "_inbox", "_partitions", "_sent", "in_flight", "late_ns")

    def __init__(self, through: Through, partitions: range, plan: PacedPlan) -> None:
        connection = connect(through.address, through.login)
        batch = record_batch(new_producer_id(connection), 1, plan.record_bytes)
        self._connection = connection.socket
        self._frame = produce_frame(through.topic_id, partitions, batch, acks=plan.acks)
        self._partitions = len(partitions)
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
            self._frame.patch(self._sent, self._sent)
            self._connection.sendall(self._frame.buffer)
            self.in_flight.append((self._sent, due_ns))
            self.late_ns.append(time.monotonic_ns() - due_ns)
            self._sent += 1

    def receive(self) -> list[tuple[int, int]]:
        """Take what has arrived; (due_ns, latency_ns) of each request it answers."""
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
            check_produce_answer(
                memoryview(bytes(self._inbox[4 : 4 + size])), correlation_id, self._partitions
            )
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
    each = plan.partitions_each
    producers = [_Producer(through, range(n * each, (n + 1) * each), plan) for n in range(plan.producers)]
    by_fd = {producer.fileno(): producer for producer in producers}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    warmup, total = (round(plan.rate_per_s * s) for s in (plan.warmup_s, plan.warmup_s + plan.measure_s))
    interval_ns = 1e9 / plan.rate_per_s
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
            before = cost_of_watched(through.watch)
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
    spent = cost_of_watched(through.watch) - before
    late_ns = sorted(late for producer in producers for late in producer.late_ns)
    for producer in producers:
        producer.close()
    return {
        "requests": total - warmup,
        "bytes": (total - warmup) * plan.partitions_each * plan.record_bytes,
        "seconds": seconds,
        **latency_summary(latencies),
        "late_p99_ms": percentile(late_ns, 0.99) / 1e6,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def latency_summary(latencies_ns: list[int]) -> dict[str, float]:
    """Percentiles in ms of latencies in ns."""
    ordered = sorted(latencies_ns)
    return {
        name: percentile(ordered, share) / 1e6
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1.0))
    }
