"""The scenarios that are sent through every target; results/README.md says what came out.

01 and 06 send as many requests per second: in 06 hardly two of a connection ever come together, so what a proxy does
for each wake-up is paid for each request. The rate is far from saturation: throughput says nothing, latency is compared
with direct's. In 07 a proxy that looks at producer ids has 30 batches to look at in each request.

02 sends batches of 950 records of 1,000 bytes, five in flight each: just under the broker's default limit of 1 MiB. 04
reads over and over from the broker's page cache, without a group and without a fetch session, with the default of 1 MiB
per partition. CPU per GB counts, then throughput.

03 and 08 hold connections that have sent ApiVersions only. A proxy has two sockets for each, so 08 needs over 16,000
open files: the limit is raised where that is allowed, else it is left out.

15 is what each connection costs from its first packet to its last. In 24 and 25 it brings a new producer id, as each
life of a crash loop does, and the quota has to decide. 16 leaves frames of 100 MB unfinished after one
half: what a proxy holds of them is memory that a client has for the price of sending; one user may announce two of them
at once. 17 has one request in flight at a time: a frame that is kept until it is whole leaves as much later as it took
to arrive. In 18 no request repeats the one before it. In 26 the proxies have all cores, and so have loads and brokers:
what counts is how many requests each gets out of its part.
"""

from collections.abc import Mapping
from typing import Any, Final

from pidgate.load.plan import Address
from tools.bench.goals import Goal
from tools.bench.loads.client import fill
from tools.bench.quantities import (
    Measured,
    cpu_s_per_gb,
    cpu_us_per_connection,
    cpu_us_per_request,
    mb_per_s,
    p50_ms,
    p90_ms,
    p99_ms,
    requests_per_cpu_s,
    rss_kb_per_connection,
    start_rss_mb,
)
from tools.bench.scenario import KEEP, Plan, Scenario
from tools.bench.targets import BASELINE, HAPROXY_THREADS, ORDINARY, PIDGATE_THREADS, PLAIN


def paced(clients: int, rate_per_s: float, partitions_each: int = 1) -> Plan:
    """Return a plan of requests of 1 KB for each partition at a fixed rate in sum."""
    return {
        "clients": clients,
        "rate_per_s": rate_per_s,
        "partitions_each": partitions_each,
        "records": 1,
        "record_bytes": 1024,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    }


def bulk(partitions_each: int, records: int) -> Plan:
    """Return a plan of two clients with batches of that many records of 1,000 bytes."""
    return {
        "clients": 2,
        "rate_per_s": 0,
        "partitions_each": partitions_each,
        "records": records,
        "record_bytes": 1000,
        "acks": 1,
        "warmup_s": 2,
        "measure_s": 8,
    }


def _cpu_per_request(limit: float, than: str = BASELINE, target: str = "pidgate") -> Goal:
    return Goal("CPU per request", cpu_us_per_request, "at most", limit, target=target, than=than)


def _cpu_per_gb(limit: float, than: str = BASELINE) -> Goal:
    return Goal("CPU per GB", cpu_s_per_gb, "at most", limit, than=than)


_THROUGHPUT: Final = Goal("throughput", mb_per_s, "at least", 0.95, than=BASELINE)
_RSS_PER_CONNECTION: Final = Goal("RSS per connection", rss_kb_per_connection, "at most", 6, "KB")


SMALL_REQUESTS = Scenario(
    number="01",
    name="small-requests",
    title="8 idempotent producers, 1 KB, 2,000 requests/s in sum",
    kind="produce",
    plan=paced(8, 2000),
    targets=(*ORDINARY, HAPROXY_THREADS, PLAIN),
    partitions=8,
    goals=(
        _cpu_per_request(1.05, than="haproxy"),
        Goal("p50", p50_ms, "at most", 0.2, "ms", than="direct", by="difference"),
        Goal("p99", p99_ms, "at most", 0.1, "ms", than="haproxy", by="difference"),
    ),
    at_once=True,
)
BULK_PRODUCE = Scenario(
    number="02",
    name="bulk-produce",
    title="2 idempotent producers, 0.95 MB batches, as fast as they go",
    kind="produce",
    plan=bulk(1, records=950),
    cost_per="GB",
    partitions=2,
    goals=(_cpu_per_gb(1.1, than="haproxy"), _THROUGHPUT),
    at_once=True,
)
IDLE = Scenario(
    number="03",
    name="memory-per-connection",
    title="2,000 idle connections, each with its connection to the broker",
    kind="idle",
    plan={"connections": 2000},
    quick={"connections": 300},
    cost_per="connection",
    partitions=1,
    goals=(_RSS_PER_CONNECTION,),
)


FETCH_PARTITIONS: Final = 16


def prepare(address: Address, topic_id: bytes, plan: Plan) -> None:
    """Fill the topic that is read."""
    fill(address, topic_id, FETCH_PARTITIONS, int(plan["records"]), int(plan["record_bytes"]), batches=200)


BULK_FETCH = Scenario(
    number="04",
    name="bulk-fetch",
    title="2 consumers, newest Fetch version, as fast as they go",
    kind="fetch",
    plan=bulk(FETCH_PARTITIONS // 2, records=100),
    cost_per="GB",
    partitions=FETCH_PARTITIONS,
    goals=(_cpu_per_gb(1.1, than="haproxy"), _THROUGHPUT),
    topic_configs=KEEP,
    prepare=prepare,
    at_once=True,
)
CONNECTIONS = Scenario(
    number="06",
    name="connections",
    title="200 idempotent producers, 1 KB, 10 requests/s each",
    kind="produce",
    plan=paced(200, 2000),
    targets=(*ORDINARY, HAPROXY_THREADS, PLAIN),
    partitions=200,
    goals=(_cpu_per_request(1.05, than="haproxy"),),
    at_once=True,
)
MANY_PARTITIONS = Scenario(
    number="07",
    name="many-partitions",
    title="4 idempotent producers, 30 partitions of 1 KB in each request, 400 requests/s in sum",
    kind="produce",
    plan=paced(4, 400, partitions_each=30),
    partitions=4 * 30,
    goals=(_cpu_per_request(1.05, than="haproxy"),),
    at_once=True,
)
MANY_IDLE = Scenario(
    number="08",
    name="idle-connections",
    title="8,000 idle connections, each with its connection to the broker",
    kind="idle",
    plan={"connections": 8000},
    quick={},
    cost_per="connection",
    partitions=1,
    goals=(
        _RSS_PER_CONNECTION,
        Goal("RSS at start", start_rss_mb, "at most", 90, "MB"),
    ),
)


def _lives(number: str, name: str, title: str, quotas: Mapping[str, Any], *goals: Goal) -> Scenario:
    return Scenario(
        number=number,
        name=name,
        title=title,
        kind="lives",
        plan={"clients": 8, "rate_per_s": 800, "record_bytes": 100, "warmup_s": 3, "measure_s": 10},
        cost_per="connection",
        partitions=8,
        goals=(Goal("CPU per connection", cpu_us_per_connection, "at most", 2.5, than="haproxy"), *goals),
        quotas=quotas,
        at_once=True,
    )


def _refused(measured: Measured) -> float:
    return measured["refused"] / measured["connections"]


ADMITTED = _lives(
    "24",
    "lives-admitted",
    "800 connections/s in sum, each with a new producer id and one Produce",
    {"mode": "enforce", "default": {"producer_ids_rate": 10_000_000}},
    Goal("refused", _refused, "exactly", 0),
)
REFUSED = _lives(
    "25",
    "lives-refused",
    "800 connections/s in sum, each with a new producer id and one Produce that a quota refuses",
    {"mode": "enforce", "default": {"producer_ids_rate": 1}},
    Goal("refused", _refused, "exactly", 1),
)
CONNECT = Scenario(
    number="15",
    name="connect",
    title="300 connections/s, each made, asked one thing and closed",
    kind="connect",
    plan={**paced(8, 300), "warmup_s": 2, "measure_s": 8},
    cost_per="connection",
    partitions=1,
    goals=(Goal("CPU per connection", cpu_us_per_connection, "at most", 2, than=BASELINE),),
    at_once=True,
)
UNFINISHED = Scenario(
    number="16",
    name="unfinished-frames",
    title="2 connections in the middle of a Produce of 100 MB",
    kind="unfinished",
    plan={"connections": 2, "batch_bytes": 100_000_000, "sent_bytes": 50_000_000, "acks": 1},
    quick={},
    cost_per="connection",
    partitions=3,
    goals=(Goal("RSS per connection", rss_kb_per_connection, "at most", 300, "KB"),),
)
LARGE_LATENCY = Scenario(
    number="17",
    name="large-latency",
    title="1 idempotent producer, 0.95 MB, 20 requests/s",
    kind="produce",
    plan={**paced(1, 20), "record_bytes": 950_000},
    cost_per="GB",
    partitions=1,
    goals=tuple(
        Goal(f"{name} added", quantity, "at most", 1.1, than="haproxy", over="direct")
        for name, quantity in (("p50", p50_ms), ("p90", p90_ms))
    ),
)
SATURATED = Scenario(
    number="26",
    name="saturated",
    title="8 idempotent producers, 1 KB, as fast as they go, through a thread for each core",
    kind="produce",
    plan=paced(8, 0),
    partitions=8,
    targets=(HAPROXY_THREADS, PIDGATE_THREADS),
    baseline=HAPROXY_THREADS,
    goals=(
        Goal(
            "requests per CPU second",
            requests_per_cpu_s,
            "at least",
            0.95,
            target=PIDGATE_THREADS,
            than=HAPROXY_THREADS,
        ),
    ),
    at_once=True,
)
MIXED = Scenario(
    number="18",
    name="mixed-requests",
    title="4 idempotent producers, 1 to 30 partitions of 6 topics in each request, 0.1 to 16 KB each, 400 requests/s",
    kind="mixed",
    plan={
        "clients": 4,
        "rate_per_s": 400,
        "topics": 6,
        "partitions_each": 5,
        "largest_batch_bytes": 16_384,
        "different_requests": 50,
        "acks": 1,
        "warmup_s": 3,
        "measure_s": 10,
    },
    partitions=4 * 5,
    goals=(_cpu_per_request(1.3),),
    at_once=True,
)

SCENARIOS: Final = (
    SMALL_REQUESTS,
    BULK_PRODUCE,
    IDLE,
    BULK_FETCH,
    CONNECTIONS,
    MANY_PARTITIONS,
    MANY_IDLE,
    CONNECT,
    ADMITTED,
    REFUSED,
    UNFINISHED,
    LARGE_LATENCY,
    MIXED,
    SATURATED,
)
