"""Grafana dashboards of deploy/grafana: `python -m tools.dashboards` writes them (`make docs`).

Three: overview (is it well, and who is over quota), user (one user), fleet (gateways and brokers). Each panel asks
Prometheus one or a few questions; tests/kafka/test_dashboards.py asks them of a real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "grafana"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_USER: Final = '{user="$user"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """`asks`: expression -> legend. `unit`: Grafana's name of it."""

    title: str
    asks: dict[str, str]
    unit: str = "short"
    description: str = ""
    is_number: bool = False
    """The latest value in large digits, in place of a line over time."""


OVERVIEW: Final = (
    Panel("Gateways that are ready", {"sum(pidgate_ready)": ""}, is_number=True),
    Panel(
        "Brokers that answer",
        {"count(max by (node_id) (pidgate_broker_up) == 1) or vector(0)": ""},
        is_number=True,
    ),
    Panel("Clients waiting now", {"sum(pidgate_producer_ids_waiting)": ""}, is_number=True),
    Panel(
        "Oldest wait",
        {"max(pidgate_producer_ids_oldest_waiting_seconds)": ""},
        "s",
        "Java and kafka-python give up after 120 s, librdkafka after 300 s.",
        is_number=True,
    ),
    Panel(
        "New producer ids",
        {
            "sum(rate(pidgate_producer_ids_admitted_total[5m]))": "admitted",
            "sum(rate(pidgate_producer_ids_refused_total[5m]))": "refused",
            "sum(rate(pidgate_producer_ids_would_refuse_total[5m]))": "would be refused (observed)",
        },
        "cps",
    ),
    Panel(
        "Users that bring most new ids",
        {"topk(10, sum by (user) (rate(pidgate_producer_ids_admitted_total[5m])))": "{{user}}"},
        "cps",
    ),
    Panel(
        "Users that are refused most",
        {"topk(10, sum by (user) (rate(pidgate_producer_ids_refused_total[5m])))": "{{user}}"},
        "cps",
    ),
    Panel(
        "Live producer ids",
        {"topk(10, sum by (user) (pidgate_producer_ids_live))": "{{user}}"},
        description="Used within `remember`. Each costs every broker of its partitions about a kilobyte.",
    ),
    Panel(
        "How long admitted ids had waited (p90)",
        {"histogram_quantile(0.9, sum by (le) (rate(pidgate_producer_ids_waited_seconds_bucket[30m])))": ""},
        "s",
    ),
    Panel("Requests", {"topk(10, sum by (api) (rate(pidgate_requests_total[5m])))": "{{api}}"}, "reqps"),
    Panel("Bytes", {"sum by (direction) (rate(pidgate_bytes_total[5m]))": "{{direction}}"}, "Bps"),
    Panel("Connections", {"sum(pidgate_connections)": "open", "sum(pidgate_connections_muted)": "muted"}),
)
ONE_USER: Final = (
    Panel("Tokens left", {f"min(pidgate_producer_ids_tokens{_USER})": ""}, is_number=True),
    Panel("Waiting now", {f"sum(pidgate_producer_ids_waiting{_USER})": ""}, is_number=True),
    Panel(
        "Oldest wait", {f"max(pidgate_producer_ids_oldest_waiting_seconds{_USER})": ""}, "s", is_number=True
    ),
    Panel("Live producer ids", {f"max(pidgate_producer_ids_live{_USER})": ""}, is_number=True),
    Panel(
        "New producer ids beside the quota",
        {
            f"sum(pidgate_producer_ids_rate{_USER})": "new ids",
            f"max(pidgate_producer_ids_quota{_USER})": "quota",
        },
        "cps",
    ),
    Panel(
        "Admitted and refused, by reason",
        {
            f"sum by (reason) (rate(pidgate_producer_ids_admitted_total{_USER}[5m]))": "admitted: {{reason}}",
            f"sum by (reason) (rate(pidgate_producer_ids_refused_total{_USER}[5m]))": "refused: {{reason}}",
        },
        "cps",
    ),
    Panel(
        "What became of refused ids",
        {f"sum by (outcome) (increase(pidgate_producer_ids_outcomes_total{_USER}[1h]))": "{{outcome}}"},
    ),
    Panel("Average throttle", {f"max(pidgate_producer_ids_throttle_time_seconds{_USER})": ""}, "s"),
    Panel(
        "Bytes", {f"sum by (direction) (rate(pidgate_user_bytes_total{_USER}[5m]))": "{{direction}}"}, "Bps"
    ),
)
FLEET: Final = (
    Panel("Ready", {"pidgate_ready": "{{instance}}"}),
    Panel("Versions", {"count by (version) (pidgate_build_info)": "{{version}}"}),
    Panel("Brokers", {"min by (node_id) (pidgate_broker_up)": "broker {{node_id}}"}),
    Panel("Other gateways heard of", {"pidgate_fleet_members": "{{instance}}"}),
    Panel("Connections", {"pidgate_connections": "{{instance}}"}),
    Panel(
        "In lanes",
        {"pidgate_lane_connections": "{{instance}}"},
        description="Connections that threads in C carry.",
    ),
    Panel("Cores", {"rate(process_cpu_seconds_total[5m])": "{{instance}}"}),
    Panel("Memory", {"process_resident_memory_bytes": "{{instance}}"}, "bytes"),
    Panel(
        "Lateness of the main thread (p99)",
        {
            "histogram_quantile(0.99, sum by (le, instance, cause) "
            "(rate(pidgate_event_loop_lateness_seconds_bucket[5m])))": "{{instance}} {{cause}}"
        },
        "s",
        "busy: the gateway; no_core: the machine.",
    ),
    Panel("Open files", {"process_open_fds": "{{instance}}", "process_max_fds": "{{instance}} at most"}),
    Panel(
        "Events",
        {
            "rate(pidgate_events_published_total[5m])": "{{instance}} published",
            "rate(pidgate_events_followed_total[5m])": "{{instance}} read",
        },
        "cps",
    ),
    Panel("Events that wait", {"pidgate_events_buffered": "{{instance}}"}),
    Panel("Grace left", {"pidgate_grace_left_seconds": "{{instance}}"}, "s"),
    Panel(
        "Connections closed",
        {"sum by (cause) (rate(pidgate_connections_closed_total[5m]))": "{{cause}}"},
        "cps",
    ),
)
BOARDS: Final = {"overview": OVERVIEW, "user": ONE_USER, "fleet": FLEET}


def board(name: str, panels: Sequence[Panel]) -> str:
    """Return a dashboard as JSON."""
    made = (
        dashboards.Dashboard(f"pidgate: {name}")
        .uid(f"pidgate-{name}")
        .tags(["pidgate"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("utc")
        .with_variable(dashboards.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    if name == "user":
        users = dashboards.QueryVariable("user").label("User").datasource(SOURCE)
        made.with_variable(users.query("label_values(pidgate_producer_ids_live, user)"))
    for panel in panels:
        made.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    drawn: stat.Panel | timeseries.Panel = stat.Panel() if panel.is_number else timeseries.Panel()
    drawn.title(panel.title).description(panel.description).datasource(SOURCE).unit(panel.unit)
    drawn.height(5 if panel.is_number else 8).span(6 if panel.is_number else 12)
    for letter, (expression, legend) in zip("ABCDEF", panel.asks.items(), strict=False):
        drawn.with_target(prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter))
    return drawn


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, panels in BOARDS.items():
        (FOLDER / f"{name}.json").write_text(board(name, panels), "utf-8")
