"""New connections at a rate: each makes one request (ApiVersions, answered by the broker), and closes.

One after the other, each at its own time; latency counts from when the connection was due to the answer.
"""

import time
from dataclasses import dataclass

from tools.bench.loads.client import Through, connect
from tools.bench.loads.paced import latency_summary
from tools.bench.process_cost import ProcessCost, cost_of_watched

_SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """Number a second, duration."""

    rate_per_s: float
    warmup_s: float
    measure_s: float


def run_connect(through: Through, plan: ConnectPlan) -> dict[str, float]:
    """Connect, ask and close; the cost holds the end of the last connection, too."""
    warmup, total = (round(plan.rate_per_s * s) for s in (plan.warmup_s, plan.warmup_s + plan.measure_s))
    start_ns = time.monotonic_ns()
    before, measured_from_ns = ProcessCost(0, 0, 0), start_ns
    latencies: list[int] = []
    for number in range(total):
        due_ns = start_ns + round(number * 1e9 / plan.rate_per_s)
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        if number == warmup:
            before, measured_from_ns = cost_of_watched(through.watch), time.monotonic_ns()
        with connect(through.address):
            answered_ns = time.monotonic_ns()
        if number >= warmup:
            latencies.append(answered_ns - due_ns)
    seconds = (time.monotonic_ns() - measured_from_ns) / 1e9
    time.sleep(_SETTLE_S)
    spent = cost_of_watched(through.watch) - before
    return {
        "connections": total - warmup,
        "seconds": seconds,
        **latency_summary(latencies),
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }
