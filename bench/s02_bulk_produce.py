"""Bulk produce: 2 idempotent producers, batches of 0.95 MB, five in flight each, as fast as they go.

Compare CPU per GB with the bare pass-through's, then throughput. A batch holds 950 records of 1,000 bytes, as
a producer with a large batch.size makes it: just under the broker's default limit of 1 MiB.
"""

from bench.goals import Goal
from bench.quantities import cpu_s_per_gb, mb_per_s
from bench.scenario import Scenario

SCENARIO = Scenario(
    number="02",
    name="bulk-produce",
    title="2 idempotent producers, 0.95 MB batches, as fast as they go",
    kind="produce",
    plan={
        "clients": 2,
        "partitions_each": 1,
        "records": 950,
        "record_bytes": 1000,
        "acks": 1,
        "warmup_s": 2,
        "measure_s": 8,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="GB",
    partitions=2,
    goals=(
        Goal(of="CPU per GB", quantity=cpu_s_per_gb, bound="at most", limit=1.15, than="bare"),
        Goal(of="throughput", quantity=mb_per_s, bound="at least", limit=0.95, than="bare"),
    ),
)
