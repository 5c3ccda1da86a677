"""Small requests: 8 idempotent producers, one batch of 1 KB per request, 2,000 requests/s in sum.

Compare CPU per request with the bare pass-through's; latency with direct's. The rate is fixed and far from
saturation, so throughput says nothing here.
"""

from bench.scenario import Scenario

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
    partitions=8,
    target_ratio=1.35,
)
