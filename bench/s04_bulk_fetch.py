"""Bulk fetch: 2 consumers, newest Fetch version, 8 partitions each with the default of 1 MiB per partition.

Everything is read over and over from the broker's page cache, without a group and without a fetch session.
Compare CPU per GB with the bare pass-through's and HAProxy's, then throughput.
"""

from bench.bulk_load import BulkPlan, fill
from bench.goals import Goal
from bench.quantities import cpu_s_per_gb, mb_per_s
from bench.scenario import KEEP, Plan, Scenario
from pidgate.load.plan import Address

_CONSUMERS = 2
_PARTITIONS_EACH = 8
_BATCHES_PER_PARTITION = 200


def _prepare(address: Address, topic_id: bytes, plan: Plan) -> None:
    fields = BulkPlan(**plan)  # type: ignore[arg-type]
    fill(address, topic_id, _CONSUMERS * _PARTITIONS_EACH, fields, _BATCHES_PER_PARTITION)


SCENARIO = Scenario(
    number="04",
    name="bulk-fetch",
    title="2 consumers, newest Fetch version, as fast as they go",
    kind="fetch",
    plan={
        "clients": _CONSUMERS,
        "partitions_each": _PARTITIONS_EACH,
        "records": 100,
        "record_bytes": 1000,
        "acks": 1,
        "warmup_s": 2,
        "measure_s": 8,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="GB",
    partitions=_CONSUMERS * _PARTITIONS_EACH,
    goals=(
        Goal(of="CPU per GB", quantity=cpu_s_per_gb, bound="at most", limit=1.2, than="bare"),
        Goal(of="CPU per GB", quantity=cpu_s_per_gb, bound="below", limit=1, than="haproxy"),
        Goal(of="throughput", quantity=mb_per_s, bound="at least", limit=0.95, than="bare"),
    ),
    topic_configs=KEEP,
    prepare=_prepare,
)
