"""Many producers, few requests of each, over partitions that they share: a fleet, as a gateway has it all day.

Each has a connection and a producer id of its own, taken one after the other before the clock starts.
"""

import select
from dataclasses import dataclass

from tools.bench.loads.client import Through, connect, new_producer_id
from tools.bench.loads.paced import PacedPlan, Producer, Same, send_paced


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """`rate_per_s` requests in sum, each to one of so many partitions."""

    producers: int
    partitions: int
    rate_per_s: float
    record_bytes: int
    acks: int
    warmup_s: float
    measure_s: float


def run_held(through: Through, plan: HeldPlan) -> dict[str, float]:
    """Send the plan; what it took, with the cost of the watched process. Raises LoadError, OSError."""
    each = PacedPlan(
        producers=plan.producers,
        rate_per_s=plan.rate_per_s,
        partitions_each=1,
        record_bytes=plan.record_bytes,
        acks=plan.acks,
        warmup_s=plan.warmup_s,
        measure_s=plan.measure_s,
    )
    poll = select.epoll()
    producers = []
    for number in range(plan.producers):
        connection = connect(through.address, through.login)
        partition = number % plan.partitions
        partitions = range(partition, partition + 1)
        requests = Same(through.topic_id, partitions, new_producer_id(connection), each)
        producers.append(Producer(connection, requests))
    measured = send_paced(producers, poll, plan.rate_per_s, plan.warmup_s, plan.measure_s, through.watch)
    return {**measured, "connections": plan.producers}
