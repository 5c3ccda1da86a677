"""Small requests: 8 idempotent producers, one batch of 1 KB per request, 2,000 requests/s in sum.

Compare CPU per request with the bare pass-through's and HAProxy's; latency with direct's. The rate is
fixed and far from saturation, so throughput says nothing here.
"""

from bench.goals import Goal
from bench.quantities import cpu_us_per_request, p50_ms, p99_ms
from bench.scenario import Scenario
from bench.targets import ORDINARY, PLAIN

SCENARIO = Scenario(
    number="01",
    name="small-requests",
    title="8 idempotent producers, 1 KB, 2,000 requests/s in sum",
    kind="paced",
    plan={
        "producers": 8,
        "rate_per_s": 2000,
        "partitions_each": 1,
        "record_bytes": 1024,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="request",
    targets=(*ORDINARY, PLAIN),
    partitions=8,
    goals=(
        Goal(of="CPU per request", quantity=cpu_us_per_request, bound="at most", limit=1.15, than="bare"),
        Goal(of="CPU per request", quantity=cpu_us_per_request, bound="at most", limit=1.15, than="haproxy"),
        Goal(
            of="p50",
            quantity=p50_ms,
            bound="at most",
            limit=0.2,
            unit="ms",
            than="direct",
            by="difference",
        ),
        Goal(of="p99", quantity=p99_ms, bound="at most", limit=1, unit="ms", than="direct", by="difference"),
    ),
)
