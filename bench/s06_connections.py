"""Many connections with little on each: 200 idempotent producers, 10 requests/s each, one batch of 1 KB.

As many requests per second as in 01, but hardly two of a connection ever come together: what a proxy does for
each wake-up is paid for each request. Compare CPU per request.
"""

from bench.goals import Goal
from bench.quantities import cpu_us_per_request
from bench.scenario import Scenario
from bench.targets import ORDINARY, PLAIN

_PRODUCERS = 200

SCENARIO = Scenario(
    number="06",
    name="connections",
    title="200 idempotent producers, 1 KB, 10 requests/s each",
    kind="paced",
    plan={
        "producers": _PRODUCERS,
        "rate_per_s": _PRODUCERS * 10,
        "partitions_each": 1,
        "record_bytes": 1024,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    cost_per="request",
    targets=(*ORDINARY, PLAIN),
    partitions=_PRODUCERS,
    goals=(Goal(of="CPU per request", quantity=cpu_us_per_request, bound="at most", limit=1.2, than="bare"),),
)
