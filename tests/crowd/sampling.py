"""Samples of a crowd: what gateways, brokers and clients take, and how many connections are open."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.crowd.stage import Stage
from tools.bench.process_cost import ENDED, ProcessCost, cost_of
from tools.sandbox.gateway import GatewayProcess

_NOTHING: Final = ProcessCost(0, 0, 0)


def cost(pid: int | None) -> ProcessCost:
    """Nothing for a process that has ended."""
    if pid is None:
        return _NOTHING
    try:
        return cost_of(pid)
    except ENDED:
        return _NOTHING


@dataclass(frozen=True, slots=True)
class Page:
    """A scrape of /metrics of which single values are looked for: to parse 20,000 lines takes the clients' time."""

    text: str

    def value(self, name: str, labels: str = "") -> float:
        """Return the sum of the samples of this name, with these labels in them."""
        lines = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", self.text, re.MULTILINE)
        return sum(float(number) for found, number in lines if labels in found)


def page_of(gateway: GatewayProcess) -> Page:
    """Empty where the gateway does not answer."""
    try:
        return Page(gateway.read("/metrics") if gateway.is_alive else "")
    except OSError:
        return Page("")


def sample(stage: Stage, own: Mapping[str, Any]) -> dict[str, Any]:
    """One row: `own` is what the clients say of themselves. A gateway that is gone has zeros."""
    row = dict(own)
    for number, gateway in enumerate(stage.gateways):
        page, taken = page_of(gateway), cost(gateway.pid if gateway.is_alive else None)
        late = "pidgate_event_loop_lateness_seconds"
        row |= {
            f"gw{number}_connections": int(page.value("pidgate_connections")),
            f"gw{number}_rss_mb": round(taken.rss_bytes / 1e6, 1),
            f"gw{number}_cpu_s": round(taken.cpu_ns / 1e9, 2),
            f"gw{number}_late_busy_s": round(page.value(f"{late}_sum", 'cause="busy"'), 2),
            f"gw{number}_late_no_core_s": round(page.value(f"{late}_sum", 'cause="no_core"'), 2),
            f"gw{number}_late_ticks": int(page.value(f"{late}_count", 'cause="busy"')),
            f"gw{number}_stalls": int(page.value("pidgate_event_loop_stalls_total")),
            f"gw{number}_refused": int(page.value("pidgate_requests_refused_total")),
            f"gw{number}_failed_open": int(page.value("pidgate_quota_failed_open_total")),
        }
    brokers = [cost(stage.cluster.node(node_id).pid) for node_id in stage.cluster.nodes]
    return row | {
        "brokers_cpu_s": round(sum(one.cpu_ns for one in brokers) / 1e9, 2),
        "brokers_rss_mb": round(sum(one.rss_bytes for one in brokers) / 1e6, 1),
    }


def add_row(path: Path, row: Mapping[str, Any], *, is_first: bool) -> None:
    """Append a row to a CSV file, which is complete whenever the crowd ends; the first one makes it anew."""
    with path.open("w" if is_first else "a", newline="") as file:
        rows = csv.writer(file)
        if is_first:
            rows.writerow(row)
        rows.writerow(row.values())
