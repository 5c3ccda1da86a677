"""Connections that stop in the middle of one large Produce: memory of the process between for each.

Each has a known producer id, and has sent the beginning of its second batch, or as much of it as was accepted.
"""

import select
import struct
import time
from dataclasses import dataclass
from typing import Final

from pidgate.load.blocking import BlockingConnection
from pidgate.load.exchanges import produce
from pidgate.protocol.produce import BATCH_HEADER_BYTES, LENGTH_OVERHEAD
from pidgate.protocol.producer_requests import produce_request
from tools.bench.loads.client import CLIENT_ID, LoadError, Through, connect, new_producer_id, record_batch
from tools.bench.process_cost import cost_of_watched

_PATIENCE_S: Final = 2.0
"""Without any progress for so long the other side accepts no more."""
_ONE_SEND: Final = 1 << 20
_LENGTH_AT: Final = 8
_BASE_SEQUENCE_AT: Final = 53


@dataclass(frozen=True, slots=True)
class UnfinishedPlan:
    """Number of connections, size of the batch that each begins, and part of its frame that it sends."""

    connections: int
    batch_bytes: int
    sent_bytes: int
    acks: int


def beginning(topic_id: bytes, partition: int, producer_id: int, plan: UnfinishedPlan) -> bytes:
    """Return the first bytes of a frame with one batch, the second of its producer."""
    batch = bytearray(plan.batch_bytes)
    batch[:BATCH_HEADER_BYTES] = record_batch(producer_id, 1, 1)[:BATCH_HEADER_BYTES]
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - LENGTH_OVERHEAD)
    struct.pack_into(">i", batch, _BASE_SEQUENCE_AT, 1)
    request = produce_request(1, CLIENT_ID, topic_id, [(partition, bytes(batch))], acks=plan.acks)
    return request[: plan.sent_bytes]


def run_unfinished(through: Through, plan: UnfinishedPlan) -> dict[str, float]:
    """Send a first batch of each id, then the beginnings; memory is read while all frames are unfinished.

    One connection comes and goes before the first measurement, so that what the process allocates once is not counted.
    """
    connections, beginnings = [], []
    for partition in range(1 + plan.connections):
        connection = connect(through.address)
        producer_id = new_producer_id(connection)
        first = [(partition, record_batch(producer_id, 1, 1))]
        answer = connection.run(produce(through.topic_id, first, acks=plan.acks))
        if answer.error_code:
            raise LoadError(f"Produce to partition {partition}: error code {answer.error_code}")
        connections.append(connection)
        beginnings.append(memoryview(beginning(through.topic_id, partition, producer_id, plan)))
    _send(connections[:1], beginnings[:1])
    connections.pop(0).close()
    time.sleep(_PATIENCE_S)
    before, began_s = cost_of_watched(through.watch), time.monotonic()
    taken_bytes = _send(connections, beginnings[1:])
    seconds = time.monotonic() - began_s
    spent = cost_of_watched(through.watch) - before
    for connection in connections:
        connection.close()
    return {
        "connections": plan.connections,
        "seconds": seconds,
        "taken_bytes": taken_bytes,
        "rss_before_bytes": before.rss_bytes,
        "rss_bytes": spent.rss_bytes,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def _send(connections: list[BlockingConnection], beginnings: list[memoryview]) -> int:
    """Send until all is sent or no socket accepts more for _PATIENCE_S; return the bytes sent."""
    left = {one.socket: data for one, data in zip(connections, beginnings, strict=True)}
    for socket in left:
        socket.setblocking(False)
    sent_bytes = 0
    while left:
        ready = select.select([], [*left], [], _PATIENCE_S)[1]
        if not ready:
            break
        for socket in ready:
            sent = socket.send(left[socket][:_ONE_SEND])
            sent_bytes += sent
            left[socket] = left[socket][sent:]
            if not left[socket]:
                del left[socket]
    time.sleep(_PATIENCE_S)
    return sent_bytes
