"""One soak from its first client to its verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.soak.clients import Crew, Found, refusals
from tests.soak.plan import REMEMBERS, SoakPlan
from tests.soak.sampling import Sample, SampleFile, sample
from tests.soak.stage import CHECKED, spec, stage_of
from tests.soak.verdict import cores_of, growths, lateness_ms, rss_mb_per_h_each
from tools.bench.machine import describe
from tools.sandbox import guard
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log

_LOOK_S: Final = 1.0
Say = Callable[[str], None]


def soak(plan: SoakPlan, say: Say) -> bool:
    """Run it, write `<date>-soak.csv` and `.json` into the plan's folder; return whether it is good."""
    name = f"{datetime.now(UTC):%Y-%m-%d}-soak" + ("-leak" if plan.leak_mb_per_h else "")
    samples: list[Sample] = []
    work = guard.temporary_directory("soak-")
    with Cluster(spec()) as cluster:
        stage = stage_of(cluster, plan, work)
        with stage.gateway as gateway:
            crew = Crew(stage, plan.life_s, plan.duration_s / REMEMBERS)
            file = SampleFile(plan.folder / f"{name}.csv")
            began_s = time.monotonic()
            due_s = began_s + plan.sample_s
            while time.monotonic() < began_s + plan.duration_s:
                crew.fill_posts()
                if time.monotonic() >= due_s:
                    due_s += plan.sample_s
                    samples.append(sample(gateway, time.monotonic() - began_s))
                    file.add(samples[-1])
                time.sleep(_LOOK_S)
            found = crew.end()
            code = gateway.stop()
            # Not by log_events: hours of lines are no matter for a list.
            errors = gateway.log_text().count('"unexpected_error"')
            log = read_log(cluster.bootstrap_servers(), CHECKED)
    verdict = check(found.journals, log)
    problems = _problems(found, samples, code, errors)
    if not verdict.is_good:
        problems.append(verdict.summary())
    grown = growths(samples)
    good = not problems and all(one.is_good for one in grown)
    cores = cores_of(samples)
    _write(
        plan.folder / f"{name}.json",
        {
            "plan": plan.as_json(),
            "machine": describe(cluster.spec.version).as_json(),
            "is_good": good,
            "growth_per_h": {one.quantity: one.as_json() for one in grown},
            "rss_mb_per_h_each": rss_mb_per_h_each(samples),
            "lateness_ms": lateness_ms(samples),
            "cores_of_all": round(cores, 3),
            "clients_started_again": found.restarts,
            "records_read": found.read,
            "log": verdict.summary(),
            "synthetic": dict(sorted(found.synthetic.items())),
            "problems": problems,
            "samples": file.path.name,
        },
    )
    for line in (*map(str, grown), verdict.summary(), f"{cores:.3f} cores in all", *problems):
        say(line)
    guard.remove_directory(work)
    return good


def _problems(found: Found, samples: list[Sample], code: int, errors: int) -> list[str]:
    problems = []
    if code != 0:
        problems.append(f"the gateway ended with {code}")
    if errors:
        problems.append(f"{errors} unexpected errors in the gateway's log")
    if not refusals(found):
        problems.append("nobody was refused: this was no soak of refusals")
    if not found.read:
        problems.append("nothing was read")
    if len({one.processes for one in samples}) > 1:
        problems.append("a process of the gateway died")
    for kind in ("steady", "transactional", "id-per-batch"):
        if found.synthetic[f"{kind}.lost"]:
            problems.append(f"{found.synthetic[f'{kind}.lost']} batches of {kind} producers were given up")
    return problems


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
