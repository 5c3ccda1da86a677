"""19: what ending TLS costs, beside HAProxy that does the same, with one cipher. See bench/tls.py."""

from dataclasses import replace
from typing import Final

from tools.bench.goals import Goal
from tools.bench.quantities import (
    Quantity,
    cpu_s_per_gb,
    cpu_us_per_connection,
    cpu_us_per_request,
    rss_kb_per_connection,
)
from tools.bench.scenario import Scenario
from tools.bench.scenarios.through_targets import BULK_FETCH, BULK_PRODUCE, CONNECT, IDLE, SMALL_REQUESTS
from tools.bench.tls import TLS_TARGETS

_TARGETS: Final = (*TLS_TARGETS.values(), *TLS_TARGETS)


def _with_tls(scenario: Scenario, *goals: Goal) -> Scenario:
    return replace(
        scenario,
        number="19",
        name=f"tls-{scenario.name}",
        title=f"With TLS: {scenario.title}",
        targets=_TARGETS,
        baseline="haproxy-tls",
        goals=goals,
    )


def _beside_haproxy(of: str, quantity: Quantity, limit: float) -> Goal:
    return Goal(of, quantity, "at most", limit, target="pidgate-tls", than="haproxy-tls")


SCENARIOS: Final = (
    _with_tls(SMALL_REQUESTS, _beside_haproxy("CPU per request", cpu_us_per_request, 1.25)),
    _with_tls(BULK_PRODUCE, _beside_haproxy("CPU per GB", cpu_s_per_gb, 1.4)),
    _with_tls(BULK_FETCH, _beside_haproxy("CPU per GB", cpu_s_per_gb, 1.4)),
    _with_tls(CONNECT, _beside_haproxy("CPU per connection", cpu_us_per_connection, 1.7)),
    _with_tls(
        IDLE, Goal("RSS per connection", rss_kb_per_connection, "at most", 60, "KB", target="pidgate-tls")
    ),
)
