"""The kernel and the console fill the same beat of the same starts."""

from __future__ import annotations

from math import isclose
from random import Random

import pyarrow as pa

from pidgate.findings.cadence import Start, cadence
from pidgate.findings.features import Span
from pidgate.pipeline.offenders.findings import judged_sources, prepared
from tests.support.who_events import START_MS

COMPARED = (
    "bursts", "interval_ms", "pause_ms", "beat_share", "grown", "overlap_share", "ids_per_burst",
    "processes", "run_ms", "clock",
)  # fmt: skip
"""Without the period of the clock: of two that fit alike, rounding chooses."""
TRUNCATED = {"interval_ms", "pause_ms", "run_ms"}
"""Whole milliseconds in tables."""


def sources() -> list[list[tuple[int, int]]]:
    """Loops, back-offs, jobs by the clock, pools and starts by chance, each with its own jitter."""
    chance, found = Random(38), []
    for number in range(60):
        kind, at_ms, starts = number % 6, START_MS + chance.randrange(3_600_000), list[tuple[int, int]]()
        for start in range(chance.choice((1, 2, 7, 40))):
            life_ms = chance.randrange(1, 90_000)
            starts.append((at_ms, at_ms + life_ms))
            if kind == 5:
                starts.append((at_ms + chance.randrange(3_000), at_ms + life_ms))
            pause_ms = (
                20_000 + chance.randrange(3_000),
                min(10_000 << start, 300_000) + life_ms,
                15 * 60_000,
                chance.randrange(100, 2_500),
                int(chance.expovariate(1 / 40_000)),
                chance.choice((900, 11_000, 150_000)),
            )[kind]
            at_ms += pause_ms
        found.append(starts)
    return found


def of_tables(made: list[list[tuple[int, int]]]) -> dict[int, dict[str, float]]:
    """The beat of each source by the kernel, from producers of one place each."""
    producers = [
        {
            "user": "u",
            "client_id": f"c{source}",
            "address": "",
            "started_ms": at,
            "seen_ms": at,
            "last_ms": end,
            **_IDLE,
        }
        for source, starts in enumerate(made)
        for at, end in starts
    ]
    schema = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in producers[0]])
    connections = pa.schema(
        [("user", pa.string()), ("client_id", pa.string()), ("address", pa.string()), ("incarnation", pa.string()),
         ("connection_id", pa.int64()), ("wall_time_ms", pa.int64()), ("close_reason", pa.string())]
    ).empty_table()  # fmt: skip
    tables = {"producers": pa.Table.from_pylist(producers, schema=schema), "connection": connections}
    with prepared(tables, Span(START_MS, START_MS), own_story=1) as kernel:
        kernel.run("offenders/sources")
        return {int(row["client"][1:]): row for row in judged_sources(kernel)}


_IDLE = {
    "producer_id": 0, "admitted": True, "requests": None, "failed": False, "error_code": None, "transactional": False,
    "name": None, "connection": None, "last_connection": None,
}  # fmt: skip
_TYPES = dict.fromkeys(("user", "client_id", "address", "name"), pa.string()) | dict.fromkeys(
    ("admitted", "failed", "transactional"), pa.bool_()
)


def test_the_beat_of_tables_is_that_of_the_console() -> None:
    made = sources()
    tables = of_tables(made)

    assert set(tables) == set(range(len(made)))
    for source, starts in enumerate(made):
        beat = cadence(Start(at, end) for at, end in starts)
        for name in COMPARED:
            value, exact = tables[source].get(name), beat.get(name)
            if value is None or exact is None:
                assert value is exact, (source, name)
            else:
                allowed = 1 if name in TRUNCATED else 1e-9
                assert isclose(value, exact, rel_tol=1e-6, abs_tol=allowed), (source, name)
