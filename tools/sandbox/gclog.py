"""Heap of a broker over time from the JVM's log (-Xlog:gc), without load on the broker."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# [12.345s][info][gc] GC(7) Pause Young (Allocation Failure) 61M->20M(92M) 3.456ms
_PAUSE = re.compile(
    r"^\[(?P<at>\d+[.,]\d+)s\].*\bPause\b.*?(?P<before>\d+)M->(?P<after>\d+)M\((?P<total>\d+)M\)"
)


@dataclass(frozen=True, slots=True)
class HeapSample:
    """The heap around one garbage collection."""

    at_s: float
    """Seconds since the JVM's start."""
    before_mb: int
    used_mb: int
    """Heap in use afterwards."""
    total_mb: int
    full: bool
    """Whether the whole heap was collected, so that all of it is live."""


def heap_samples(lines: Iterable[str]) -> list[HeapSample]:
    """Return a sample per collection pause in the log; other lines are skipped."""
    samples = []
    for line in lines:
        if match := _PAUSE.match(line):
            samples.append(
                HeapSample(
                    at_s=float(match["at"].replace(",", ".")),
                    before_mb=int(match["before"]),
                    used_mb=int(match["after"]),
                    total_mb=int(match["total"]),
                    full="Pause Full" in line,
                )
            )
    return samples
