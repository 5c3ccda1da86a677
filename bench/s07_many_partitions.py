"""30 partitions in one request: 4 idempotent producers, a batch of 1 KB for each partition, 400 requests/s in sum.

A proxy that looks at producer ids has 30 batches to look at in each request. Compare CPU per request.
"""

from bench.goals import Goal
from bench.quantities import cpu_us_per_request
from bench.scenario import Scenario

_PRODUCERS = 4
_PARTITIONS_EACH = 30

SCENARIO = Scenario(
    number="07",
    name="many-partitions",
    title="4 idempotent producers, 30 partitions of 1 KB in each request, 400 requests/s in sum",
    kind="paced",
    plan={
        "producers": _PRODUCERS,
        "rate_per_s": 400,
        "partitions_each": _PARTITIONS_EACH,
        "record_bytes": 1024,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="request",
    partitions=_PRODUCERS * _PARTITIONS_EACH,
    goals=(Goal(of="CPU per request", quantity=cpu_us_per_request, bound="at most", limit=1.3, than="bare"),),
)
