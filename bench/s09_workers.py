"""`workers: 2` against one: what the second costs, and that both together hold one quota.

COST is 01's rate over more connections, so that the kernel deals about as many to either worker; the cost is that of
supervisor, holder and workers together. QUOTA sends fresh ids over both workers, four times as many as the
quota allows, in much less time than it takes for a token to come back: what one process admits is admitted,
not one more.
"""

from bench.goals import Goal
from bench.quantities import admitted_ids, cpu_us_per_request
from bench.scenario import Scenario
from bench.targets import TWO_WORKERS

_RATE = 100
# A burst of one window, and one more: an id is let in while there is a token left, however little of it.
_ADMITTED = _RATE + 1
_FRESH_IDS = 4 * _RATE
_PRODUCERS = 64
_PARTITIONS = 8

_TARGETS = ("pidgate", TWO_WORKERS)

COST = Scenario(
    number="09",
    name="workers",
    title="2 workers against 1: 64 idempotent producers, 1 KB, 2,000 requests/s in sum",
    kind="paced",
    plan={
        "producers": _PRODUCERS,
        "rate_per_s": 2000,
        "partitions_each": 1,
        "record_bytes": 1024,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="request",
    partitions=_PRODUCERS,
    targets=_TARGETS,
    baseline="pidgate",
    goals=(
        Goal(
            of="CPU per request",
            quantity=cpu_us_per_request,
            bound="at most",
            limit=1.1,
            target=TWO_WORKERS,
            than="pidgate",
        ),
    ),
)

QUOTA = Scenario(
    number="09",
    name="workers-quota",
    title=f"One quota over 2 workers: {_FRESH_IDS} fresh producer ids at the same moment, producer_ids_rate {_RATE}",
    kind="fresh",
    plan={"producers": _FRESH_IDS, "partitions": _PARTITIONS, "record_bytes": 100, "acks": 1},
    quick={},
    cost_per="request",
    partitions=_PARTITIONS,
    targets=_TARGETS,
    baseline="pidgate",
    quotas={
        "mode": "enforce",
        "default": {"producer_ids_rate": _RATE},
        "producer_ids": {"window": "10h", "max_throttle": "1s", "cold_start": "enforce"},
    },
    goals=(
        Goal(of="ids admitted by one process", quantity=admitted_ids, bound="exactly", limit=_ADMITTED),
        Goal(
            of="ids admitted by 2 workers",
            quantity=admitted_ids,
            bound="exactly",
            limit=_ADMITTED,
            target=TWO_WORKERS,
        ),
    ),
)
