"""One scenario: a load, run through every target in turn, as often as asked.

Interleaved (A B C D, A B C D, ...), so that a machine that slows down slows all of them; each is compared
with the baseline of its own run: of the two shapes of a bare pass-through the one that costs less in this scenario.
"""

import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from pidgate.load.plan import Address
from tools.bench.goals import Goal
from tools.bench.loads.client import Through, create_topic
from tools.bench.loads.idle import WARM_CONNECTIONS
from tools.bench.loads.process import measured_by, started
from tools.bench.machine import OPEN_FILES_SLACK, Placement
from tools.bench.process_cost import cost_of, machine_busy_s
from tools.bench.quantities import (
    Measured,
    cpu_s_per_gb,
    cpu_us_per_connection,
    cpu_us_per_request,
    mb_per_s,
    rss_kb_per_connection,
)
from tools.bench.targets import BARE, BASELINE, GENEROUS, ORDINARY, Broker, Tree, answering, running
from tools.sandbox.ports import free_port

Plan = Mapping[str, float]

# By size alone: the records' timestamps are constants.
KEEP: Final = {"retention.ms": "-1"}

# Bulk loads write hundreds of MB per second: what is old goes at once, or the disk fills.
RETENTION: Final = {
    **KEEP,
    "retention.bytes": "134217728",
    "segment.bytes": "67108864",
    "file.delete.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Measured quantity, and per what."""

    number: str
    name: str
    title: str
    kind: str
    """A kind of load (see `loads.process`)."""
    plan: Plan
    partitions: int
    """Of its topic, or of each of the plan's topics."""
    quick: Plan = field(default_factory=lambda: {"warmup_s": 1, "measure_s": 2})
    """Fields of the plan that `--quick` replaces."""
    cost_per: Literal["request", "record", "GB", "connection"] = "request"
    goals: Sequence[Goal] = ()
    targets: Sequence[str] = ORDINARY
    baseline: str = BASELINE
    """Target of whose cost the others' is a multiple (see `baseline_of`)."""
    quotas: Mapping[str, Any] = field(default_factory=lambda: dict(GENEROUS))
    """pidgate's section of that name."""
    topic_configs: Mapping[str, str] = field(default_factory=lambda: dict(RETENTION))
    prepare: Callable[[Address, bytes, Plan], None] | None = None
    """Writer that fills the topic once, directly at the broker."""
    at_once: bool = False
    """Measure all targets at the same moment, behind a broker that answers producers at once."""

    def plan_for(self, quick: bool) -> Plan:
        """The plan, shortened if `quick`."""
        return {**self.plan, **self.quick} if quick else self.plan

    @property
    def cost_unit(self) -> str:
        return "s/GB" if self.cost_per == "GB" else f"us/{self.cost_per}"

    def open_files(self, quick: bool) -> int:
        """Return how many a process needs, which has a client's and a broker's side of every connection."""
        plan = self.plan_for(quick)
        connections = plan.get("connections", 0) + plan.get("clients", 0)
        return 2 * (int(connections) + WARM_CONNECTIONS) + OPEN_FILES_SLACK


@dataclass(frozen=True, slots=True)
class Bench:
    """Parts that all runs share."""

    broker: Broker
    broker_pid: int
    placement: Placement
    say: Callable[[str], None]
    other: Tree | None = None
    """The other commit, with `--against`."""


def measure(
    scenario: Scenario, bench: Bench, targets: Sequence[str], runs: int, quick: bool
) -> dict[str, list[Measured]]:
    """`runs` rounds over the targets; target -> what each of its runs measured."""
    plan = scenario.plan_for(quick)
    topics = _topics(scenario, plan, bench)
    results: dict[str, list[Measured]] = {target: [] for target in targets}
    with tempfile.TemporaryDirectory(prefix="pidgate-bench-") as folder:
        for run in range(1, runs + 1):
            # Every other round backwards: a target does not always run after the same one.
            for target in targets if run % 2 else reversed(targets):
                proxy_cpus = bench.placement.proxy
                with running(
                    target, bench.broker, Path(folder), proxy_cpus, scenario.quotas, bench.other
                ) as (address, pid):
                    measured = _load(scenario, plan, bench, topics.through(address, pid))
                results[target].append(measured)
                bench.say(f"{scenario.number} run {run}/{runs} {target:13} {_brief(scenario, measured)}")
    return results


def measure_side_by_side(
    scenario: Scenario, bench: Bench, targets: Sequence[str], runs: int, quick: bool
) -> dict[str, list[Measured]]:
    """`runs` times all targets at once, on one processor, each with a load of its own and its part of the rate.

    What the machine does to one of them it does to the others at the same time: on a virtual machine two runs of one
    program, one after the other, differ by a tenth. They share a broker that answers producers at once.
    """
    plan = scenario.plan_for(quick)
    part = {
        name: type(value)(value / len(targets)) if name in _SHARED else value for name, value in plan.items()
    }
    topics = [_topics(scenario, plan, bench) for _ in targets]
    results: dict[str, list[Measured]] = {target: [] for target in targets}
    with (
        tempfile.TemporaryDirectory(prefix="pidgate-bench-") as folder,
        ThreadPoolExecutor() as waiting,
        answering(bench.broker, Path(folder), bench.placement.rest) as (broker, broker_pid),
    ):
        for run in range(1, runs + 1):
            with ExitStack() as stack:
                ways = {}
                order = [*zip(targets, topics, strict=True)]
                for target, topic in order if run % 2 else reversed(order):
                    proxy_cpus = bench.placement.proxy
                    place = Path(folder, target)
                    place.mkdir(exist_ok=True)
                    own = replace(broker, proxy_port=free_port())
                    proxy = running(target, own, place, proxy_cpus, scenario.quotas, bench.other)
                    ways[target] = topic.through(*stack.enter_context(proxy))
                loads = {
                    target: stack.enter_context(started(scenario.kind, way, part, bench.placement))
                    for target, way in ways.items()
                }
                proxies = [way.watch for way in ways.values() if way.watch]
                with _noise([broker_pid, bench.broker_pid], proxies) as noise:
                    ends = {target: waiting.submit(measured_by, load) for target, load in loads.items()}
                    waited = {target: end.result() for target, end in ends.items()}
                for target, end in waited.items():
                    measured: Measured = end | noise
                    results[target].append(measured)
                    bench.say(f"{scenario.number} run {run}/{runs} {target:13} {_brief(scenario, measured)}")
    return results


_SHARED: Final = {"connections", "rate_per_s"}
"""Of a plan: what targets that run at once share."""


@dataclass(frozen=True, slots=True)
class _Topics:
    """The topics of a scenario, made."""

    topic_id: bytes
    name: str
    further: tuple[bytes, ...]

    def through(self, address: Address, pid: int | None) -> Through:
        """Return the way of a load to them."""
        return Through(address, self.topic_id, None, pid, self.name, self.further)


def _topics(scenario: Scenario, plan: Plan, bench: Bench) -> _Topics:
    topic = f"bench-{scenario.name}-{time.monotonic_ns()}"
    names = [topic, *(f"{topic}-{number}" for number in range(1, int(plan.get("topics", 1))))]
    topic_id, *further = (
        create_topic(bench.broker.address, name, scenario.partitions, dict(scenario.topic_configs))
        for name in names
    )
    if scenario.prepare:
        scenario.prepare(bench.broker.address, topic_id, plan)
    return _Topics(topic_id, topic, tuple(further))


def _load(scenario: Scenario, plan: Plan, bench: Bench, through: Through) -> Measured:
    with (
        _noise([bench.broker_pid], [through.watch] if through.watch else []) as noise,
        started(scenario.kind, through, plan, bench.placement) as load,
    ):
        measured = measured_by(load)
    return measured | noise


@contextmanager
def _noise(brokers: Sequence[int], proxies: Sequence[int]) -> Iterator[Measured]:
    """Put the cores that brokers, loads, and others than these and the proxies use in the block into what it yields."""
    noise: Measured = {}
    started_s, before = time.monotonic(), _cpu_s(brokers, proxies)
    yield noise
    seconds = time.monotonic() - started_s
    all_s, broker_s, load_s, proxy_s = (
        now - then for now, then in zip(_cpu_s(brokers, proxies), before, strict=True)
    )
    noise["broker_cores"], noise["load_cores"] = broker_s / seconds, load_s / seconds
    noise["foreign_cores"] = max(0.0, (all_s - broker_s - load_s - proxy_s) / seconds)


def _cpu_s(brokers: Sequence[int], proxies: Sequence[int]) -> tuple[float, float, float, float]:
    """CPU time of the machine, of brokers, of loads that have ended, and of proxies."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    broker_s, proxy_s = (sum(cost_of(pid).cpu_ns for pid in pids) / 1e9 for pids in (brokers, proxies))
    return machine_busy_s(), broker_s, children.ru_utime + children.ru_stime, proxy_s


def cost(scenario: Scenario, measured: Measured) -> float:
    """CPU of the proxy: us per request, s per GB, or us per connection opened."""
    match scenario.cost_per:
        case "request" | "record":
            return cpu_us_per_request(measured)
        case "GB":
            return cpu_s_per_gb(measured)
        case _:
            return cpu_us_per_connection(measured)


def baseline_of(scenario: Scenario, results: Mapping[str, Sequence[Measured]]) -> str:
    """Return the target that costs are compared with: of several shapes the one with the least median cost."""
    if scenario.baseline != BASELINE:
        return scenario.baseline
    medians = {
        shape: median(cost(scenario, run) for run in results[shape]) for shape in BARE if results.get(shape)
    }
    return min(medians, key=medians.__getitem__, default=BASELINE)


def _brief(scenario: Scenario, measured: Measured) -> str:
    parts = [f"CPU {cost(scenario, measured):8.2f} {scenario.cost_unit}"]
    if "p50_ms" in measured:
        parts.append(f"p50 {measured['p50_ms']:.2f} p99 {measured['p99_ms']:.2f} ms")
    if "bytes" in measured:
        parts.append(f"{mb_per_s(measured):.0f} MB/s")
    if "rss_bytes" in measured:
        parts.append(f"{rss_kb_per_connection(measured):.1f} KB/connection")
    if "foreign_cores" in measured:
        parts.append(f"others {measured['foreign_cores']:.2f} cores")
    return "  ".join(parts)
