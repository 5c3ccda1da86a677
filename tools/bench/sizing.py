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
    over: str = ""
    """A target whose number is subtracted, run by run."""


def _bytes_per_id(measured: dict[str, float]) -> float:
    return measured["grown_bytes"] / measured["live_ids"]


def _kb_per_user(measured: dict[str, float]) -> float:
    return measured["grown_bytes"] / measured["users"] / 1e3


def _p50_ms(measured: dict[str, float]) -> float:
    return measured["p50_ms"]


def _p99_ms(measured: dict[str, float]) -> float:
    return measured["p99_ms"]


# A second of CPU for each GB is a thousandth of a core for each MB/s.
_MILLICORES: Final = "millicores per MB/s"
ROWS: Final[Sequence[Row]] = (
    Row("latency added: p50 of 2,000 requests/s", "ms", "01-small-requests", _p50_ms, 2, over="direct"),
    Row("latency added: p99", "ms", "01-small-requests", _p99_ms, 2, over="direct"),
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
# Latency and sizing

For operators who plan machines: latency, cores and memory that a gateway takes.

Begin with one core and 512 MB for a gateway, with a limit of 2 GB: memory holds the process, its connections and ids by
the rows below, and up to `limits.buffered_total` (512 MiB) of frames. A gateway decides on one core: from 0.6 of it on,
run a second gateway.

Add up the rows of your traffic: 20 MB/s of 1 KB requests and 100 MB/s of large batches are 20 times
the row of 1 KB and 100 times that of 0.95 MB, both sides of a connection together. Numbers are
[medians](../../tools/bench/results/README.md) of runs of one compiled gateway, with the least and the greatest in
brackets ([method](../../tools/bench/README.md)).

| | | unit | from |
| --- | ---: | --- | --- |
"""


def table(folder: Path = RESULTS) -> str:
    """Return the page, from the newest result of each scenario in `folder`."""
    rows = "".join(f"{_line(row, newest(folder, row.scenario))}\n" for row in ROWS)
    return _HEAD + rows + _crowd(folder) + _breaks(folder)


def _crowd(folder: Path) -> str:
    """The section about the newest `make crowd`."""
    path = newest(folder, "crowd")
    if path is None:
        return ""
    found = json.loads(path.read_text("utf-8"))
    plan, records, machine = found["plan"], found["records"], found["machine"]
    rogues = [one for user, one in sorted(found["rogues"].items())][2:]
    phases = "".join(
        f"| {phase['phase']} | {phase['seconds']:.0f} s | {phase['records_per_s']:.0f} | "
        f"{phase['latency_ms']['p50']:.0f} | {phase['latency_ms']['p99']:,.0f} | {phase['latency_ms']['max']:,.0f} | "
        f"{_back(phase)} |\n"
        for phase in found["phases"]
    )
    return f"""
## {plan["connections"]:,} connections for an hour

`make crowd`: {plan["users"]:,} users with {plan["each"]} idempotent producers each, {plan["rogues"]} rogues that bring
a new producer id each second, and {plan["gateways"]} gateways on one port, since a process may have 20,000 open files
on that machine. During the hour each user started all its producers again with new ids. All gateways took a reload
that blocked a rogue and raised another; one was drained and started again, and one was killed for good. From
[{path.stem}](../../tools/bench/results/{path.name}), {machine["cores"]} cores that other work shared.

- {records["acknowledged"]:,} records were acknowledged; {records["lost"]} were lost, {records["doubled"]} doubled,
  {records["reordered"]} reordered (read back from the brokers).
- {sum(found["refusals_within_quota"].values())} batches of users within their quota were refused.
- Each rogue tried {min(one["tries"] for one in rogues):,} to {max(one["tries"] for one in rogues):,} times and got
  {min(one["ids"] for one in rogues)} to {max(one["ids"] for one in rogues)} ids; its quota is {plan["rate"]} in
  {plan["window_s"] // 60} minutes, and as many at the start.
- The largest gateway had {found["most_connections_of_a_gateway"]:,} connections and took
  {found["most_rss_mb_of_a_gateway"]:.0f} MB.
- Cores while nothing happened: {_cores(found["cores_while_all_are_there"])}.
{"".join(f"- **Not met**: {problem}.{chr(10)}" for problem in found["problems"])}
| phase | lasted | records/s | p50 ms | p99 ms | longest ms | all connected again after |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{phases}
The clients' own event loops were up to {found["clients_late_s"]:.0f} s late, since other work wanted the cores, too.
Latencies and the times until all were connected again include that.
"""


def _back(phase: dict[str, Any]) -> str:
    after_s = phase.get("all_connected_after_s")
    had = phase.get("connections_it_had")
    return "" if after_s is None else f"{after_s:.0f} s" + (f" ({had:,} were cut off)" if had else "")


def _cores(shares: dict[str, float]) -> str:
    gateways = [share for name, share in shares.items() if name.startswith("gw")]
    return (
        f"{sum(gateways):.2f} for all gateways, {shares['brokers_cpu_s']:.2f} for two brokers, "
        f"{shares['cpu_s']:.2f} for the clients"
    )


def _at_what(step: dict[str, Any]) -> str:
    """Say what was used up in the last step."""
    gateway, done = step["cores"]["gw0_cpu_s"], step["done_per_s"]
    return (
        f"What broke was the machine, not the gateway: clients, brokers and others had used up its cores when the\n"
        f"gateway took {gateway:.2f} of one. That is {1e6 * gateway / done:.0f} us a request. At that, a core of its\n"
        f"own would carry some {round(done / gateway, -3):,.0f} a second."
    )


def _breaks(folder: Path) -> str:
    """The section about where one gateway breaks."""
    path = newest(folder, "crowd-breaks")
    if path is None:
        return ""
    found = json.loads(path.read_text("utf-8"))
    requests, connections = found["requests"], found["connections"]
    steps = "".join(
        f"| {step['phase']} | {step.get('done_per_s', 0):,} | {step['latency_ms']['p50']:,.0f} | "
        f"{step['latency_ms']['p99']:,.0f} | {step['cores'].get('gw0_cpu_s', 0):.2f} | "
        f"{step['cores'].get('brokers_cpu_s', 0):.2f} | {step['cores'].get('cpu_s', 0):.2f} |\n"
        for step in requests["steps"][1:]
    )
    return f"""
## Where one gateway breaks

`python -m tests.crowd --break`, from [{path.stem}](../../tools/bench/results/{path.name}).

Requests, with {requests["connections"]:,} connections that send in turn, doubled every 30 s until less than 90 % of
them are done in time. Cores of the gateway, two brokers, and the clients, which are in Python:

| asked | done a second | p50 ms | p99 ms | gateway | brokers | clients |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{steps}
{_at_what(requests["steps"][-1])}

Connections: of {connections["asked"]:,} that wanted in, one gateway took {connections["connections"]:,} and
{connections["most_rss_mb"]:.0f} MB; then its 20,000 open files were used up. Those that were in went on
({connections["done_per_s"]} records/s), the others waited in the kernel.

Coming back at once: strangers, which have not logged in yet, hold a sixteenth of `limits.connections`. Where more
clients than that come back in a second, and each takes longer than a second for its login, a gateway closes the
oldest of them for the next ones, and few get in. That was seen with 5,000 clients in two busy processes and 608 places;
with 100 logins at a time in each all were back within a minute. Raise the open files, or let clients come back with
a backoff.
"""


def _line(row: Row, path: Path | None) -> str:
    content: dict[str, Any] = {} if path is None else json.loads(path.read_text("utf-8"))
    runs = content.get("results", {}).get(row.target)
    if path is None or not runs:
        return f"| {row.what} | not measured | {row.unit} | scenario {row.scenario[:2]} |"
    numbers = [row.quantity(run) for run in runs]
    if row.over:
        bases = map(row.quantity, content["results"][row.over])
        numbers = [number - base for number, base in zip(numbers, bases, strict=True)]
    shown = Spread.of(numbers).shown(row.digits)
    source = f"[{path.stem}](../../tools/bench/results/{path.name}), commit {content['machine']['commit']}"
    return f"| {row.what} | {shown} | {row.unit} | {source} |"


if __name__ == "__main__":
    PAGE.write_text(table(), "utf-8")
