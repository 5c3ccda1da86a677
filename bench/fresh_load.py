"""Fresh producer ids, all at the same moment: how many of them a quota lets in.

One connection and one id each, one batch each, never sent again; nothing here is timed.
"""

import time
from dataclasses import dataclass
from typing import Final

from bench.codec import ProduceResponse
from bench.cold_client import Address, connect, new_producer_id, receive_frame, say_hello
from bench.process_cost import ProcessCost, cost_of
from bench.wire import PRODUCE_VERSION, LoadError, ProduceFrame, record_batch

# NOT_ENOUGH_REPLICAS: what a producer id over its quota is answered.
_REFUSED: Final = 19


@dataclass(frozen=True, slots=True)
class FreshPlan:
    """How many ids, each with one batch of one record, spread over the partitions of the topic."""

    producers: int
    partitions: int
    record_bytes: int
    acks: int


def run_fresh(address: Address, topic_id: bytes, plan: FreshPlan, watch: int | None) -> dict[str, float]:
    """Ask for all ids, then send all batches, then read all answers; LoadError on any other answer."""
    connections = []
    for number in range(plan.producers):
        connection = connect(address)
        say_hello(connection)
        batch = record_batch(new_producer_id(connection), 1, plan.record_bytes)
        frame = ProduceFrame(topic_id, [number % plan.partitions], batch, acks=plan.acks, records=1)
        frame.patch(number, 0)
        connections.append((connection, frame))
    before = cost_of(watch) if watch else ProcessCost(0, 0, 0)
    start = time.monotonic()
    for connection, frame in connections:
        connection.sendall(frame.buffer)
    codes = [_error_code(receive_frame(connection)) for connection, _ in connections]
    seconds = time.monotonic() - start
    spent = cost_of(watch) - before if watch else ProcessCost(0, 0, 0)
    for connection, _ in connections:
        connection.close()
    admitted, refused = codes.count(0), codes.count(_REFUSED)
    if admitted + refused != plan.producers:
        raise LoadError(f"Produce of a fresh id: error codes {sorted(set(codes) - {0, _REFUSED})}")
    return {
        "requests": plan.producers,
        "admitted": admitted,
        "refused": refused,
        "seconds": seconds,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def _error_code(answer: bytes) -> int:
    [topic] = ProduceResponse.decode(answer, version=PRODUCE_VERSION, header=True).responses
    [partition] = topic.partition_responses
    return int(partition.error_code)
