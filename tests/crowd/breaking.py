"""How much one gateway carries before it breaks, and at what: connections, then requests."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.crowd.clients import names_of
from tests.crowd.plan import CrowdPlan
from tests.crowd.running import Crowd, Say, all_of, cores_in
from tests.crowd.stage import stage_of
from tools.bench.machine import describe

STEP_S: Final = 30.0
FIRST_PER_S: Final = 500
SAMPLE_S: Final = 5.0
LEAST_SHARE: Final = 0.9
"""Of the requests that were due: below it the step is too much."""
NO_MORE_S: Final = 20.0
"""Without another connection for so long, there is no room."""


def break_all(folder: Path, say: Say) -> None:
    """Write `<date>-crowd-breaks.json` into the folder."""
    name = f"{datetime.now(UTC):%Y-%m-%d}-crowd-breaks"
    folder.mkdir(parents=True, exist_ok=True)
    requests = CrowdPlan(minutes=0.0, users=500, rogues=0, busy=0, only_gateways=1)
    connections = replace(requests, users=1_200, connects_per_s=200.0)
    found: dict[str, Any] = {
        "requests": _requests(requests, folder / f"{name}-requests.csv", say),
        "connections": _connections(connections, folder / f"{name}-connections.csv", say),
    }
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    say(json.dumps(found, indent=1))


def _requests(plan: CrowdPlan, path: Path, say: Say) -> dict[str, Any]:
    """Double the requests a second until they are not done in time."""
    users, _ = names_of(plan)
    with stage_of(plan, [], users) as stage:
        crowd = Crowd(plan, stage, path, say)
        crowd.sample_s = SAMPLE_S
        began_s = time.monotonic()
        crowd.wait_until(began_s + plan.ramp_s)
        crowd.until_all_are_back(began_s)
        per_s, share = FIRST_PER_S, 1.0
        while share >= LEAST_SHARE:
            began_s = crowd.begin(f"{per_s} requests/s", every_s=plan.connections / per_s)
            crowd.wait_until(began_s + STEP_S / 2)
            before, since_s = crowd.sum_of("acknowledged"), time.monotonic()
            crowd.wait_until(began_s + STEP_S)
            done_per_s = (crowd.sum_of("acknowledged") - before) / (time.monotonic() - since_s)
            share = done_per_s / per_s
            crowd.note(done_per_s=round(done_per_s))
            per_s *= 2
        told = all_of(crowd.end())
        steps = [
            phase.as_json(told.latency[phase.name]) | {"cores": cores_in(crowd, phase)}
            for phase in crowd.phases[:-1]
        ]
        machine = describe(stage.cluster.spec.version).as_json()
    return {"connections": plan.connections, "machine": machine, "steps": steps, "late_s": told.late_s}


def _connections(plan: CrowdPlan, path: Path, say: Say) -> dict[str, Any]:
    """Add connections until there are no more."""
    users, _ = names_of(plan)
    with stage_of(plan, [], users) as stage:
        crowd = Crowd(plan, stage, path, say)
        crowd.sample_s = SAMPLE_S
        most, since_s = 0, time.monotonic()
        while time.monotonic() - since_s < NO_MORE_S:
            crowd.wait_until(time.monotonic() + 1.0)
            if (connected := crowd.sum_of("connected")) > most:
                most, since_s = connected, time.monotonic()
        began_s = crowd.begin("no room for more")
        before = crowd.sum_of("acknowledged")
        crowd.wait_until(began_s + STEP_S)
        done_per_s = (crowd.sum_of("acknowledged") - before) / STEP_S
        told = all_of(crowd.end())
        log = stage.gateways[0].log_text()
        limit = next(
            (line for line in log.splitlines() if "accepting_paused" in line or "open_files" in line), ""
        )
    return {
        "asked": plan.connections,
        "connections": most,
        "done_per_s": round(done_per_s),
        "phases": [phase.as_json(told.latency[phase.name]) for phase in crowd.phases[:-1]],
        "most_rss_mb": max(row["gw0_rss_mb"] for row in crowd.rows),
        "first_line": limit,
    }
