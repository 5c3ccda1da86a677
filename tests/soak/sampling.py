"""Samples of a soak: memory, descriptors, threads and tasks of the gateway's processes, how late their loops come."""

from __future__ import annotations

import csv
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.hostile.cost import memory_bytes
from tools.bench.process_cost import cost_of, family
from tools.sandbox.gateway import GatewayProcess


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes of the gateway in sum; what counts up counts from their start."""

    seconds: float
    """Since the soak began."""
    rss_mb: float
    rss_mb_each: str
    """Of each process, in the order in which they were started: who grows."""
    descriptors: int
    threads: int
    tasks: int
    processes: int
    connections: int
    late_ticks: int
    late_busy_s: float
    late_no_core_s: float
    requests: int
    refused: int
    ids_admitted: int
    gateway_cpu_s: float
    all_cpu_s: float
    """Broker, clients and the soak itself included."""


NAMES = tuple(field.name for field in fields(Sample))


def sample(gateway: GatewayProcess, seconds: float) -> Sample:
    """Look once. Raises OSError when the gateway does not answer."""
    assert gateway.pid is not None
    members = family(gateway.pid)
    metrics = gateway.metrics()
    cost = cost_of(gateway.pid)
    lateness = "pidgate_event_loop_lateness_seconds"
    return Sample(
        seconds=round(seconds, 1),
        rss_mb=round(cost.rss_bytes / 1e6, 3),
        rss_mb_each=" ".join(f"{_resident_bytes(pid) / 1e6:.1f}" for pid in sorted(members)),
        descriptors=sum(_entries(pid, "fd") for pid in members),
        threads=sum(_entries(pid, "task") for pid in members),
        tasks=int(metrics.value("pidgate_event_loop_tasks")),
        processes=len(members),
        connections=int(metrics.value("pidgate_connections")),
        late_ticks=int(metrics.value(f"{lateness}_count", cause="busy")),
        late_busy_s=round(metrics.value(f"{lateness}_sum", cause="busy"), 4),
        late_no_core_s=round(metrics.value(f"{lateness}_sum", cause="no_core"), 4),
        requests=int(metrics.value("pidgate_requests_total")),
        refused=int(metrics.value("pidgate_requests_refused_total")),
        ids_admitted=int(metrics.value("pidgate_producer_ids_admitted_total")),
        gateway_cpu_s=round(cost.cpu_ns / 1e9, 2),
        all_cpu_s=round(cost_of(os.getpid()).cpu_ns / 1e9 + _of_ended_s(), 2),
    )


def _entries(pid: int, folder: str) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return len(os.listdir(f"/proc/{pid}/{folder}"))
    return 0


def _resident_bytes(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return memory_bytes(pid, "VmRSS")
    return 0


def _of_ended_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


class SampleFile:
    """A CSV file with a line for each sample, complete whenever the soak ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerow(NAMES)

    def add(self, one: Sample) -> None:
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(astuple(one))


def column(samples: Sequence[Sample], name: str) -> list[float]:
    return [float(getattr(one, name)) for one in samples]
