"""Scenarios that are not sent through every target: each asks something of the gateway alone.

A scenario starts what it needs itself; what it compares are phases of its own, and each of them has its runs as a
target has elsewhere.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import statvfs
from pathlib import Path
from typing import Any, Final

from bench.goals import ENOUGH_RUNS, Goal, verdicts
from bench.machine import Placement, pin
from bench.quantities import Measured, Quantity
from bench.statistics import Spread
from pidgate.sandbox.gateway import GatewayProcess
from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.spec import ClusterSpec

Plan = Mapping[str, float]
Results = dict[str, list[Measured]]

BROKER_PROPERTIES: Final = {
    "log.retention.check.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "max.connections.per.ip": "20000",
}
# Memory as disk keeps write-back out of the measurements; the broker's data stay below this.
_SHM: Final = Path("/dev/shm")
_SHM_NEEDED_BYTES: Final = 6 << 30


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a scenario is to be measured."""

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
    """What is measured, by whom, and what it has to reach."""

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

    def section(self, content: Mapping[str, Any], file: str) -> str:
        """Its heading, provenance and table."""
        results: Results = content["results"]
        machine = content["machine"]
        where = (
            f"{content['date']}, {machine['cores']} x {machine['cpu']}, {machine['memory_gib']} GiB, Linux "
            f"{machine['kernel']}, Python {machine['python']}, uvloop {machine['uvloop']}, Kafka "
            f"{machine['kafka']}, commit {machine['commit']}, {'pinned' if content['pinned'] else 'not pinned'} "
            f"([{file}]({file}))"
        )
        lines = [f"## {self.number} {self.title}", "", where, ""]
        if content["quick"]:
            lines += ["A smoke run (`--quick`): too short to say anything.", ""]
        lines.append("| | " + " | ".join(column.title for column in self.columns) + " |")
        lines.append("| --- |" + " ---: |" * len(self.columns))
        for phase, runs in results.items():
            cells = [_cell(column, runs) for column in self.columns]
            lines.append(f"| {phase} | " + " | ".join(cells) + " |")
        lines += ["", *verdicts(self.goals, results, enough_runs=self.enough_runs)]
        return "\n".join(lines) + "\n"


def _cell(column: Column, runs: Sequence[Measured]) -> str:
    try:
        values = [column.quantity(run) for run in runs]
    except KeyError:
        return "-"  # not of this phase
    return spread_of(values, column.digits)


def spread_of(values: Sequence[float], digits: int) -> str:
    """The median, with the least and the greatest in brackets."""
    spread = Spread.of(values)
    if len(values) == 1:
        return f"{spread.median:.{digits}f}"
    return f"{spread.median:.{digits}f} ({spread.least:.{digits}f}-{spread.greatest:.{digits}f})"


def measured_as(name: str) -> Quantity:
    """What a run has measured under this name."""
    return lambda measured: measured[name]


def in_memory() -> None:
    """Brokers that are started from now on keep their data in memory, where there is room."""
    if _SHM.is_dir() and statvfs(_SHM).f_bavail * statvfs(_SHM).f_frsize > _SHM_NEEDED_BYTES:
        tempfile.tempdir = str(_SHM)


def broker_spec(properties: Mapping[str, str] | None = None, *, sasl: bool = False) -> ClusterSpec:
    """One broker that is measured against."""
    return ClusterSpec(
        heap_mb=2048,
        sasl=sasl,
        properties={**BROKER_PROPERTIES, **(properties or {})},
        # As much room for what is young as brokers are given: with the JVM's choice it stopped for 10 to 50 ms every
        # three seconds, and that was the p99 of whatever went through.
        jvm_options=("-XX:+UseSerialGC", "-Xms2g", "-Xmn1g", "-XX:+AlwaysPreTouch"),
        keep_logs_on_failure=False,
    )


@contextmanager
def broker_beside(placement: Placement, spec: ClusterSpec) -> Iterator[Cluster]:
    """A broker of the scenario's own, on the processors of the load."""
    in_memory()
    with Cluster(spec) as cluster:
        pid = cluster.pid(1)
        if pid:
            pin(pid, placement.rest)
        yield cluster


def give_core(gateway: GatewayProcess, placement: Placement) -> None:
    """Let the gateway run where a proxy is measured."""
    if gateway.pid:
        pin(gateway.pid, placement.proxy)
