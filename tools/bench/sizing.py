"""One table of what the gateway takes of a machine, docs/reference/sizing.md, made from the committed results.

`python -m tools.bench.sizing` rewrites it, as `python -m tools.bench --commit` does. A test compares page and results.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.bench.quantities import (
    Quantity,
    cpu_s_per_gb,
    cpu_us_per_connection,
    cpu_us_per_request,
    rss_kb_per_connection,
    start_rss_mb,
)
from tools.bench.report import RESULTS, newest
from tools.bench.statistics import Spread
from tools.bench.targets import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "sizing.md"


class Row(NamedTuple):
    """One number of a scenario's target."""

    what: str
    unit: str
    scenario: str
    """Number and name, as in the result's file."""
    quantity: Quantity
    digits: int
    target: str = "pidgate"


def _bytes_per_id(measured: dict[str, float]) -> float:
    return measured["grown_bytes"] / measured["live_ids"]


def _kb_per_user(measured: dict[str, float]) -> float:
    return measured["grown_bytes"] / measured["users"] / 1e3


# A second of CPU for each GB is a thousandth of a core for each MB/s.
_MILLICORES: Final = "millicores per MB/s"
ROWS: Final[Sequence[Row]] = (
    Row("produce, requests of 1 KB", _MILLICORES, "01-small-requests", cpu_s_per_gb, 1),
    Row("the same, in us of CPU", "us per request", "01-small-requests", cpu_us_per_request, 0),
    Row("produce, batches of 0.95 MB", _MILLICORES, "02-bulk-produce", cpu_s_per_gb, 2),
    Row("fetch, answers of some MB", _MILLICORES, "04-bulk-fetch", cpu_s_per_gb, 2),
    Row("a connection made, asked once, closed", "us", "15-connect", cpu_us_per_connection, 0),
    Row("with TLS: produce, 1 KB", _MILLICORES, "19-tls-small-requests", cpu_s_per_gb, 1, "pidgate-tls"),
    Row("with TLS: produce, 0.95 MB", _MILLICORES, "19-tls-bulk-produce", cpu_s_per_gb, 2, "pidgate-tls"),
    Row("with TLS: fetch", _MILLICORES, "19-tls-bulk-fetch", cpu_s_per_gb, 2, "pidgate-tls"),
    Row("with TLS: a connection", "us", "19-tls-connect", cpu_us_per_connection, 0, "pidgate-tls"),
    Row("memory: the process, 50 connections", "MB", "08-idle-connections", start_rss_mb, 0),
    Row("memory: an idle connection", "KB", "08-idle-connections", rss_kb_per_connection, 1),
    Row(
        "memory: an idle connection with TLS",
        "KB",
        "19-tls-memory-per-connection",
        rss_kb_per_connection,
        1,
        "pidgate-tls",
    ),
    Row(
        "memory: in the middle of a frame of 100 MB that passes on",
        "KB",
        "16-unfinished-frames",
        rss_kb_per_connection,
        0,
    ),
    Row("memory: a remembered producer id", "bytes", "13-filter", _bytes_per_id, 1),
    Row("memory: a user, with one id", "KB", "13-filter", _kb_per_user, 2, "users"),
)

_HEAD: Final = """\
# Sizing

For operators who plan machines. Made by `python -m tools.bench.sizing` from
[the results](../../tools/bench/results/README.md): the median of the runs, with the least and the greatest in brackets;
how each was measured: [method](../../tools/bench/README.md). One gateway, hot path compiled, on the machine that the
result names; for another one, measure one row there.

A thousandth of a core for each MB/s is what the gateway's process takes, for both sides of a connection together. Add
the rows that your traffic is made of: 20 MB/s of 1 KB requests and 100 MB/s of large batches are 20 times the first row
and 100 times the third. A gateway has one core: from 0.6 of it on, run a second one.

| | | unit | from |
| --- | ---: | --- | --- |
"""


def table(folder: Path = RESULTS) -> str:
    """Return the page, from the newest result of each scenario in `folder`."""
    return _HEAD + "".join(f"{_line(row, newest(folder, row.scenario))}\n" for row in ROWS)


def _line(row: Row, path: Path | None) -> str:
    content: dict[str, Any] = {} if path is None else json.loads(path.read_text("utf-8"))
    runs = content.get("results", {}).get(row.target)
    if path is None or not runs:
        return f"| {row.what} | not measured | {row.unit} | scenario {row.scenario[:2]} |"
    shown = Spread.of([row.quantity(run) for run in runs]).shown(row.digits)
    source = f"[{path.stem}](../../tools/bench/results/{path.name}), commit {content['machine']['commit']}"
    return f"| {row.what} | {shown} | {row.unit} | {source} |"


if __name__ == "__main__":
    PAGE.write_text(table(), "utf-8")
