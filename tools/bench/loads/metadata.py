"""Answers to Metadata for many topics, and beside them tiny requests that show whether the event loop stands still.

The tiny ones are ApiVersions on a connection of their own, which a broker answers, and GET /livez of the admin site,
which the gateway answers by itself on the same event loop: what is late there was late in the gateway. Each is sent at
its own time whatever the answers do; latency counts from when it was due.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

from pidgate.load.exchanges import message_of
from pidgate.load.plan import Address
from pidgate.load.prebuilt import LoadError
from pidgate.protocol.codec import encode_request, message_class
from pidgate.protocol.messages import METADATA, METADATA_PROBE_VERSION, api_versions_request
from tools.bench.loads.client import CLIENT_ID, FAILURES, Through, connect
from tools.bench.loads.paced import latency_summary

_INBOX_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class MetadataPlan:
    """Topics, and requests with their rates; a rate of 0 leaves that request out."""

    topics: int
    partitions: int
    metadata_per_s: float
    tiny_per_s: float
    seconds: float
    admin_port: int


def topic_name(number: int) -> str:
    return f"bench-metadata-{number:04}"


class _Paced(threading.Thread):
    """Caller of `exchange(number)` at a rate; `latencies_ns` from when each call was due to its end."""

    def __init__(self, exchange: Callable[[int], None], per_s: float, seconds: float, start_ns: int) -> None:
        super().__init__(daemon=True)
        self.latencies_ns: list[int] = []
        self.failure: Exception | None = None
        self._exchange = exchange
        self._count = round(per_s * seconds)
        self._interval_ns = 1e9 / per_s if per_s else 0.0
        self._start_ns = start_ns

    def run(self) -> None:
        try:
            for number in range(self._count):
                due_ns = self._start_ns + round(number * self._interval_ns)
                wait_ns = due_ns - time.monotonic_ns()
                if wait_ns > 0:
                    time.sleep(wait_ns / 1e9)
                self._exchange(number)
                self.latencies_ns.append(time.monotonic_ns() - due_ns)
        except FAILURES as error:
            self.failure = error


def metadata_requests(topics: int) -> list[bytes]:
    """All topics; then all of them by name but one, a different one each time: every answer is a new one to a
    gateway that knows answers again by their checksum.
    """
    some = [_metadata_request(None)]
    for left_out in range(min(topics, 20)):
        some.append(_metadata_request([topic_name(n) for n in range(topics) if n != left_out]))
    return some


def _metadata_request(names: list[str] | None) -> bytes:
    topics = None if names is None else [{"name": name} for name in names]
    body = {"topics": topics, "allow_auto_topic_creation": False}
    message = message_of(message_class(METADATA, "request"), METADATA_PROBE_VERSION, body)
    return encode_request(1, CLIENT_ID, message)


class _Asker:
    """Metadata on a connection of its own."""

    def __init__(self, address: Address, topics: int) -> None:
        self._connection = connect(address)
        self._requests = metadata_requests(topics)
        self._received = bytearray(_INBOX_BYTES)
        self.received_bytes = 0

    def ask(self, number: int) -> None:
        self._connection.send(self._requests[number % len(self._requests)])
        self.received_bytes += len(self._connection.frame_into(self._received))


def _tiny_kafka(address: Address) -> Callable[[int], None]:
    connection = connect(address)
    request = api_versions_request(1, CLIENT_ID)

    def exchange(_number: int) -> None:
        connection.ask(request)

    return exchange


def _tiny_http(address: Address) -> Callable[[int], None]:
    connection = HTTPConnection(*address)

    def exchange(_number: int) -> None:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise LoadError(f"admin site: status {answer.status}")

    return exchange


def run_metadata(through: Through, plan: MetadataPlan) -> dict[str, float]:
    """Run all three at once for `seconds`; return latencies in ms by kind. Raises LoadError."""
    sys.setswitchinterval(0.0005)  # three threads: none may wait 5 ms for another
    kafka, admin = through.address, (through.address[0], plan.admin_port)
    asker = _Asker(kafka, plan.topics)
    start_ns = time.monotonic_ns() + 200_000_000
    threads = {
        "kafka": _Paced(_tiny_kafka(kafka), plan.tiny_per_s, plan.seconds, start_ns),
        "loop": _Paced(_tiny_http(admin), plan.tiny_per_s, plan.seconds, start_ns),
        "metadata": _Paced(asker.ask, plan.metadata_per_s, plan.seconds, start_ns),
    }
    for thread in threads.values():
        thread.start()
    measured: dict[str, float] = {}
    for kind, thread in threads.items():
        thread.join()
        if thread.failure is not None:
            raise LoadError(f"{kind}: {thread.failure}")
        if thread.latencies_ns:
            summary = latency_summary(thread.latencies_ns)
            measured |= {f"{kind}_{name}": value for name, value in summary.items()}
    answers = len(threads["metadata"].latencies_ns)
    return {**measured, "answers": answers, "answer_bytes": asker.received_bytes / max(answers, 1)}
