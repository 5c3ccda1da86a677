"""Scenarios that are not sent through every target: each asks something of the gateway alone.

A scenario starts what it needs itself; what it compares are phases of its own, and each of them has its runs as a
target has elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tools.bench.compiled import compiled, environment
from tools.bench.goals import ENOUGH_RUNS, Goal
from tools.bench.machine import Placement, pin
from tools.bench.quantities import Measured, Quantity
from tools.bench.targets import GENEROUS
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.play import keep_brokers_in_memory
from tools.sandbox.spec import ClusterSpec

Plan = Mapping[str, float]
Results = dict[str, list[Measured]]

BROKER_PROPERTIES: Final = {
    "log.retention.check.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "max.connections.per.ip": "20000",
}
BROKER_BYTES: Final = 6 << 30
"""A broker's data stay below this."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Measuring of a scenario: how often and how long."""

    runs: int
    placement: Placement
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of the table."""

    title: str
    quantity: Quantity
    digits: int


@dataclass(frozen=True, slots=True)
class Alone:
    """Measured quantity, by whom, and what it has to reach."""

    number: str
    name: str
    title: str
    kafka: str
    """The version of the broker that is started, or that there is none."""
    plan: Plan
    quick: Plan
    """Fields of the plan that `--quick` replaces."""
    measure: Callable[[Plan, Conditions], Results]
    columns: Sequence[Column]
    goals: Sequence[Goal]
    enough_runs: int = ENOUGH_RUNS

    def plan_for(self, quick: bool) -> Plan:
        """The plan, shortened if `quick`."""
        return {**self.plan, **self.quick} if quick else self.plan


def broker_spec(
    properties: Mapping[str, str] | None = None, *, sasl: bool = False, proxied_port: int = 0
) -> ClusterSpec:
    """One broker that is measured against."""
    return ClusterSpec(
        heap_mb=2048,
        sasl=sasl,
        proxied_port=proxied_port,
        properties={**BROKER_PROPERTIES, **(properties or {})},
        # As much room for what is young as brokers are given: with the JVM's choice it stopped for 10 to 50 ms every
        # three seconds, and that was the p99 of whatever went through.
        jvm_options=("-XX:+UseSerialGC", "-Xms2g", "-Xmn1g", "-XX:+AlwaysPreTouch"),
        keep_logs_on_failure=False,
    )


@contextmanager
def broker_beside(placement: Placement, spec: ClusterSpec) -> Iterator[Cluster]:
    """A broker of the scenario's own, on the processors of the load."""
    keep_brokers_in_memory(BROKER_BYTES)
    with Cluster(spec) as cluster:
        pid = cluster.node(1).pid
        if pid:
            pin(pid, placement.rest)
        yield cluster


def compiled_gateway(
    bootstrap_servers: str, quotas: Mapping[str, Any] = GENEROUS, **settings: Any
) -> GatewayProcess:
    """The gateway as it is installed, events on; not started."""
    settings = {"events": {"enabled": True}, **settings}
    return GatewayProcess(
        bootstrap_servers, environment=environment(compiled()), quotas=quotas, settings=settings
    )


def give_core(gateway: GatewayProcess, placement: Placement) -> None:
    """Let the gateway run where a proxy is measured."""
    if gateway.pid:
        pin(gateway.pid, placement.proxy)
