"""Lives of a crash loop: connect, ApiVersions, InitProducerId, one Produce, close; answered or refused by a quota.

By blocking sockets and threads, which cost this process a quarter of what the library of `pidgate load` does: several
of these loads run at the same moment.
"""

import os
import socket
import struct
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Final

from pidgate.load.tally import Latency
from pidgate.protocol import messages, producer_requests
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.record_batch import RecordBatch
from pidgate.version import version
from tools.bench.loads.client import CLIENT_ID, TIMESTAMP_MS, LoadError, Through, latency_summary
from tools.bench.process_cost import cost_of_watched

_TIMEOUT_S: Final = 30.0
_HELLO: Final = messages.api_versions_request(1, CLIENT_ID, version())
_NEW_ID: Final = producer_requests.init_producer_id_request(2, CLIENT_ID, None)


@dataclass(frozen=True, slots=True)
class LivesPlan:
    """`rate_per_s` lives in sum; a client has one at a time."""

    clients: int
    rate_per_s: float
    record_bytes: int
    warmup_s: float
    measure_s: float


def run_lives(through: Through, plan: LivesPlan) -> dict[str, float]:
    """Live at this rate. Raises LoadError, OSError, KafkaProtocolError."""
    batch, began_s = RecordBatch([os.urandom(plan.record_bytes)]), time.monotonic()
    counted_s = began_s + plan.warmup_s
    latency, found = Latency(), Counter[int]()

    def one_client(number: int) -> None:
        for turn in range(int((plan.warmup_s + plan.measure_s) * plan.rate_per_s / plan.clients)):
            due_s = began_s + (turn * plan.clients + number) / plan.rate_per_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            error_code = _live(through, number, batch)
            if due_s >= counted_s:
                found[error_code] += 1
                latency.record(time.monotonic() - due_s)

    with ThreadPoolExecutor(plan.clients) as clients:
        done = [clients.submit(one_client, number) for number in range(plan.clients)]
        time.sleep(max(0.0, counted_s - time.monotonic()))
        before = cost_of_watched(through.watch)
        for one in done:
            one.result()
    spent = cost_of_watched(through.watch) - before
    connections, refused = found.total(), found.pop(ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    if set(found) - {ErrorCode.NONE}:
        raise LoadError(f"answers with an error: {dict(found)}")
    return {
        "connections": connections,
        "refused": refused,
        "seconds": time.monotonic() - counted_s,
        **latency_summary(latency),
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def _live(through: Through, partition: int, batch: RecordBatch) -> int:
    """Return the error code of the Produce."""
    with (
        socket.create_connection(through.address, _TIMEOUT_S) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_HELLO)
        _answer(answers)
        connection.sendall(_NEW_ID)
        error_code, producer_id = struct.unpack_from(">hq", _answer(answers), 8)
        if error_code:
            raise LoadError(f"InitProducerId: error code {error_code}")
        batches = [(partition, batch.stamped(producer_id, 0, 0, TIMESTAMP_MS))]
        connection.sendall(producer_requests.produce_request(3, CLIENT_ID, through.topic_id, batches, acks=1))
        version = producer_requests.PRODUCE_BY_ID_VERSION
        return producer_requests.produce_answer(_answer(answers), version).error_code


def _answer(answers: BinaryIO) -> bytes:
    size = answers.read(4)
    if len(size) < 4:
        raise ConnectionResetError("the connection was closed")
    return answers.read(*struct.unpack(">i", size))
