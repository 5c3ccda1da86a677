"""Fresh producer ids, all at the same moment: how many of them a quota lets in.

One connection and one id each, one batch each, never sent again; nothing here is timed.
"""

import time
from dataclasses import dataclass

from pidgate.load.prebuilt import LoadError
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION, produce_answer
from tools.bench.loads.client import Through, connect, new_producer_id, produce_frame, record_batch
from tools.bench.process_cost import cost_of_watched


@dataclass(frozen=True, slots=True)
class FreshPlan:
    """Number of ids, each with one batch of one record, spread over the partitions of the topic."""

    producers: int
    partitions: int
    record_bytes: int
    acks: int


def run_fresh(through: Through, plan: FreshPlan) -> dict[str, float]:
    """Ask for all ids, then send all batches, then read all answers. Raises LoadError on any other answer."""
    connections = []
    for number in range(plan.producers):
        connection = connect(through.address)
        batch = record_batch(new_producer_id(connection), 1, plan.record_bytes)
        frame = produce_frame(through.topic_id, [number % plan.partitions], batch, acks=plan.acks)
        frame.patch(number, 0)
        connections.append((connection, frame))
    before = cost_of_watched(through.watch)
    start = time.monotonic()
    for connection, frame in connections:
        connection.send(frame.buffer)
    codes = [
        produce_answer(connection.frame(), PRODUCE_BY_ID_VERSION).error_code for connection, _ in connections
    ]
    seconds = time.monotonic() - start
    spent = cost_of_watched(through.watch) - before
    for connection, _ in connections:
        connection.close()
    admitted, refused = codes.count(0), codes.count(ErrorCode.NOT_ENOUGH_REPLICAS)
    if admitted + refused != plan.producers:
        raise LoadError(
            f"Produce of a fresh id: error codes {sorted(set(codes) - {0, ErrorCode.NOT_ENOUGH_REPLICAS})}"
        )
    return {
        "requests": plan.producers,
        "admitted": admitted,
        "refused": refused,
        "seconds": seconds,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }
