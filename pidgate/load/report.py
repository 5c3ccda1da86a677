"""The result of a run, as JSON and as a table. PURE except for the console that it writes to.

docs/how-to/load.md describes the fields.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from pidgate.console import print_table
from pidgate.load.plan import Plan
from pidgate.load.running import Result, Tallies
from pidgate.load.tally import Latency, Tally
from pidgate.protocol.errors import ErrorCode

SCHEMA_VERSION: Final = 1
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}
_NAMES: Final = {int(code): code.name for code in ErrorCode}
_NOT_COUNTS: Final = ("latency", "sent_late", "from_s")
_OWN_DELAY_BAD_MS: Final = 5.0


def total_of(tallies: Tallies) -> Tally:
    """Return the sum of all kinds."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return total


def report(result: Result) -> dict[str, Any]:
    """Return the result as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": _plan(result.plan),
        "seconds": round(result.seconds, 3),
        "stopped_early": result.was_stopped,
        "not_prepared": result.not_prepared,
        "generator_delay_ms": _latency(result.own_delay),
        "total": _tally(total_of(result.tallies), result.seconds),
        "kinds": {kind: _tally(tally, result.seconds) for kind, tally in result.tallies.items()},
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "bootstrap_servers": [f"{host}:{port}" for host, port in plan.bootstrap],
        "topic": plan.topic,
        "clients": {kind: clients._asdict() for kind, clients in plan.clients.items()},
        "duration_s": plan.duration_s,
        "record_bytes": plan.record_bytes,
        "records_per_batch": plan.records_per_batch,
        "user": None if plan.login is None else plan.login.user,
        "client_id": plan.client_id,
    }


def _tally(tally: Tally, seconds: float) -> dict[str, Any]:
    per_s = 1 / seconds if seconds else 0.0
    return {
        **{name: _plain(getattr(tally, name)) for name in Tally.__slots__ if name not in _NOT_COUNTS},
        "acknowledged_per_s": round(tally.acknowledged * per_s, 2),
        "bytes_per_s": round(tally.bytes * per_s),
        "sent_late_ms": _latency(tally.sent_late),
        "latency_ms": _latency(tally.latency),
        "latency_hdr": tally.latency.encoded(),
    }


def _plain(value: int | float | Counter[int]) -> int | float | dict[str, int]:
    if isinstance(value, Counter):
        return {str(code): count for code, count in sorted(value.items())}
    return round(value, 3)


def _latency(latency: Latency) -> dict[str, float | int | None]:
    found: dict[str, float | int | None] = {"count": latency.count}
    found |= {name: latency.percentile_ms(percent) for name, percent in PERCENTILES.items()}
    return {**found, "max": latency.max_ms}


def show(console: Console, result: Result) -> None:
    """Print the result as a table."""
    tallies, total = result.tallies, total_of(result.tallies)
    columns: dict[str, Tally] = dict(tallies)
    if len(columns) > 1:
        columns["all"] = total
    rows = [
        (label, *cells)
        for label, cells in _rows(list(columns.values()), result.seconds)
        if any(cell not in ("0", "") for cell in cells) or label in _ALWAYS
    ]
    print_table(console, ("", *columns), rows, right=list(columns))
    for note in notes(result):
        console.print(Text(note, style="yellow"))


_ALWAYS: Final = ("due", "acknowledged", "unfinished")


def _rows(tallies: list[Tally], seconds: float) -> list[tuple[str, list[str]]]:
    def each(of: Any) -> list[str]:
        return [of(tally) for tally in tallies]

    def count(name: str) -> list[str]:
        return [f"{getattr(tally, name):,}" for tally in tallies]

    rows = [
        ("due", count("due")),
        ("requests", count("requests")),
        ("acknowledged", count("acknowledged")),
        ("records", count("records")),
        *_by_code("refused", tallies, "refused"),
        ("  with throttle", count("refused_with_throttle")),
        *_by_code("ids refused", tallies, "ids_refused"),
        ("sent again", count("resent")),
        ("lost", count("lost")),
        ("possibly doubled", count("possibly_doubled")),
        ("unfinished", count("unfinished")),
        ("producer ids", count("ids")),
        ("connections", count("connections")),
        ("connection errors", count("connection_errors")),
        ("throttle s", each(lambda tally: f"{tally.throttle_s:,.1f}" if tally.throttle_s else "0")),
        ("acknowledged/s", each(lambda tally: f"{tally.acknowledged / seconds:,.1f}" if seconds else "")),
        ("MB/s", each(lambda tally: f"{tally.bytes / seconds / 1e6:,.2f}" if seconds else "")),
    ]
    rows += [
        (f"{name.replace('_', '.')} ms", each(lambda tally, p=percent: _ms(tally.latency.percentile_ms(p))))
        for name, percent in PERCENTILES.items()
    ]
    rows.append(("sent late p99 ms", each(lambda tally: _ms(tally.sent_late.percentile_ms(99.0)))))
    return [*rows, ("max ms", each(lambda tally: _ms(tally.latency.max_ms)))]


def _by_code(label: str, tallies: list[Tally], name: str) -> list[tuple[str, list[str]]]:
    codes = sorted({code for tally in tallies for code in getattr(tally, name)})
    return [
        (
            f"{label} {code} {_NAMES.get(code, '')}".rstrip(),
            [f"{getattr(tally, name)[code]:,}" for tally in tallies],
        )
        for code in codes
    ]


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def notes(result: Result) -> list[str]:
    """Return warnings about the numbers."""
    found = []
    total = total_of(result.tallies)
    own_p99 = result.own_delay.percentile_ms(99.0)
    if own_p99 is not None and own_p99 > _OWN_DELAY_BAD_MS:
        found.append(
            f"The generator itself was {own_p99:.1f} ms late (p99): too high a rate for it, or a busy machine. "
            "The latencies include that delay."
        )
    if total.unfinished:
        found.append(
            f"{total.unfinished:,} batches were not acknowledged when the run ended; "
            "each counts with the time that it had waited by then."
        )
    if result.not_prepared:
        found.append(f"{result.not_prepared} clients had no connection or producer id when sending began.")
    if result.was_stopped:
        found.append("Stopped before its time.")
    return found
