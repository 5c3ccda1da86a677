"""One crowd from its first connection to its verdict."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pidgate.load.tally import Latency
from tests.crowd.clients import END, Clients, Outcome, names_of
from tests.crowd.plan import BACK_WITHIN_S, RAISED, RATE, CrowdPlan
from tests.crowd.reading import Found, check
from tests.crowd.sampling import add_row, sample
from tests.crowd.stage import PARTITIONS, TOPIC, Stage, stage_of
from tools.bench.machine import describe
from tools.sandbox.log_checker import stream_log

Say = Callable[[str], None]
SAMPLE_S: Final = 15.0
NOTICED_S: Final = 2.0
"""Until producers know that their gateway has gone, and have said so."""
_LOOK_S: Final = 0.2
_RELOADED_WITHIN_S: Final = 5.0


@dataclass(slots=True)
class Phase:
    """A time between two moments, by the monotonic clock."""

    name: str
    began_s: float
    acknowledged_before: int
    ended_s: float = 0.0
    acknowledged: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    def as_json(self, latency: Latency) -> dict[str, Any]:
        seconds = self.ended_s - self.began_s
        return {
            "phase": self.name,
            "seconds": round(seconds, 1),
            "records_per_s": round((self.acknowledged - self.acknowledged_before) / seconds, 1),
            "latency_ms": {f"p{percent:g}": latency.percentile_ms(percent) for percent in (50, 90, 99, 99.9)}
            | {"max": latency.max_ms},
            **self.notes,
        }


class Crowd:
    """All clients of a stage, and what happens to them."""

    def __init__(self, plan: CrowdPlan, stage: Stage, path: Path, say: Say) -> None:
        self.plan = plan
        self.stage = stage
        self.rows: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.phases: list[Phase] = []
        self.sample_s = SAMPLE_S
        self._path = path
        self._say = say
        self._began_s = self._sample_s = time.monotonic()
        servers = stage.gateways[0].bootstrap_servers
        self._clients = [Clients(plan, part, servers, TOPIC, PARTITIONS) for part in range(plan.processes)]
        self.begin("ramp")

    def sum_of(self, name: str) -> int:
        return sum(int(getattr(one.look(), name)) for one in self._clients)

    def begin(self, name: str, *, every_s: float | None = None, **notes: Any) -> float:
        """End the present phase, and begin another, at another pace if it is given. Return its first moment."""
        now_s, acknowledged = time.monotonic(), self.sum_of("acknowledged")
        if self.phases:
            done = self.phases[-1]
            done.ended_s, done.acknowledged = now_s, acknowledged
        self._say(f"{now_s - self._began_s:.0f} s, {acknowledged} records: {name or 'end'} {notes or ''}")
        self.phases.append(Phase(name, now_s, acknowledged, notes=notes))
        for one in self._clients:
            one.begin(name, every_s)
        return now_s

    def note(self, **notes: Any) -> None:
        self.phases[-1].notes.update(notes)
        self._say(f"  {notes}")

    def wait_until(self, moment_s: float) -> None:
        while time.monotonic() < moment_s:
            self._look()

    def _look(self) -> None:
        """Wait a moment; take a sample when it is time."""
        time.sleep(_LOOK_S)
        for one in self._clients:
            one.look()
        if time.monotonic() >= self._sample_s:
            self._sample_s = time.monotonic() + self.sample_s
            self.rows.append(sample(self.stage, self._own_row()))
            add_row(self._path, self.rows[-1], is_first=len(self.rows) == 1)

    def _own_row(self) -> dict[str, Any]:
        statuses = [one.look() for one in self._clients]
        sums = {
            name: sum(getattr(one, name) for one in statuses)
            for name in statuses[0]._fields
            if name != "late_ms"
        }
        return {
            "seconds": round(time.monotonic() - self._began_s, 1),
            "phase": self.phases[-1].name,
            **sums,
            "late_ms": max(one.late_ms for one in statuses),
        }

    def until_all_are_back(self, since_s: float) -> None:
        """Wait until everybody is connected, and note after how long; add a problem if it takes too long."""
        give_up_s = time.monotonic() + BACK_WITHIN_S
        while (missing := self.plan.connections - self.sum_of("connected")) > 0:
            if time.monotonic() > give_up_s:
                where = self.phases[-1].name
                self.problems.append(f"{where}: {missing} connections were missing after {BACK_WITHIN_S:g} s")
                return
            self._look()
        self.note(all_connected_after_s=round(time.monotonic() - since_s, 1))

    def end(self) -> list[Outcome]:
        self.begin(END)
        return [one.outcome() for one in self._clients]


def _play(plan: CrowdPlan, stage: Stage, path: Path, say: Say) -> tuple[Crowd, list[Outcome], float]:
    """Return all that was told, and when the reload was."""
    _, rogues = names_of(plan)
    first, *_, last = stage.gateways
    crowd = Crowd(plan, stage, path, say)
    began_s = time.monotonic()
    crowd.wait_until(began_s + plan.ramp_s)
    crowd.until_all_are_back(began_s)
    ramped_s = crowd.begin("all are there")
    moments = {name: ramped_s + after_s for name, after_s in plan.moments().items()}

    crowd.wait_until(moments["reload"])
    reloaded_s = crowd.begin("reload")
    changed = {rogues[0]: {"producer_ids_rate": 0}, rogues[1]: {"producer_ids_rate": RAISED}}
    stage.rewrite({"users": changed})

    crowd.wait_until(moments["restore"])
    drained_s = crowd.begin(
        "restore", connections_it_had=crowd.rows[-1][f"gw{len(stage.gateways) - 1}_connections"]
    )
    if code := last.stop(90.0):
        crowd.problems.append(f"the gateway that was drained ended with {code}")
    crowd.note(drained_after_s=round(time.monotonic() - drained_s, 1))
    last.start(wait=False)
    crowd.wait_until(time.monotonic() + NOTICED_S)
    crowd.until_all_are_back(drained_s)
    last.wait_until_ready()
    restored_ms = last.log_events("state_restored")[-1]["waited_ms"]
    crowd.note(state_restored_after_s=round(restored_ms / 1_000, 1))

    crowd.wait_until(moments["fail-over"])
    killed_s = crowd.begin("fail-over", connections_it_had=crowd.rows[-1]["gw0_connections"])
    first.kill()
    crowd.wait_until(killed_s + NOTICED_S)
    crowd.until_all_are_back(killed_s)

    crowd.wait_until(ramped_s + plan.duration_s)
    outcomes = crowd.end()
    for number, gateway in enumerate(stage.gateways[1:], start=1):
        if code := gateway.stop(90.0):
            crowd.problems.append(f"gateway {number} ended with {code}")
    return crowd, outcomes, reloaded_s


def play(plan: CrowdPlan, folder: Path, say: Say) -> bool:
    """Run it, write `<date>-crowd.csv` and `.json` into the folder; return whether it is good."""
    users, rogues = names_of(plan)
    name = f"{datetime.now(UTC):%Y-%m-%d}-crowd"
    folder.mkdir(parents=True, exist_ok=True)
    with stage_of(plan, rogues, users) as stage:
        crowd, outcomes, reloaded_s = _play(plan, stage, folder / f"{name}.csv", say)
        told = all_of(outcomes)
        log = stream_log(stage.cluster.bootstrap_servers(), TOPIC, timeout_s=1_800)
        found = check(told.acknowledged, set(told.tries), log)
        logs = [gateway.log_text() for gateway in stage.gateways]
        machine = describe(stage.cluster.spec.version).as_json()
    problems = [*crowd.problems, *told.problems, *found.problems]
    problems += _problems(crowd, told, found, reloaded_s)
    if errors := sum(log_text.count('"unexpected_error"') for log_text in logs):
        problems.append(f"{errors} unexpected errors in the logs of the gateways")
    content = _as_json(crowd, told, found) | {
        "machine": machine,
        "is_good": not problems,
        "problems": problems,
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    say(json.dumps(content, indent=1))
    return not problems


def all_of(outcomes: list[Outcome]) -> Outcome:
    first, *others = outcomes
    for one in others:
        first.acknowledged |= one.acknowledged
        first.tries |= one.tries
        first.admitted_at_s |= one.admitted_at_s
        first.refusals += one.refusals
        first.ids_refused += one.ids_refused
        first.late_s = max(first.late_s, one.late_s)
        first.problems += one.problems
        for phase, latency in one.latency.items():
            first.latency[phase].add(latency)
    return first


def _problems(crowd: Crowd, told: Outcome, found: Found, reloaded_s: float) -> list[str]:
    plan, problems = crowd.plan, []
    seconds = sum(phase.ended_s - phase.began_s for phase in crowd.phases[1:-1])
    by_quota = {text: times for text, times in told.refusals.items() if "quota" in text}
    if by_quota:
        problems.append(f"users within their quota were refused: {by_quota}")
    if told.ids_refused:
        problems.append(f"users within their quota were given no id: {dict(told.ids_refused)}")
    if any(value for row in crowd.rows for key, value in row.items() if key.endswith("_failed_open")):
        problems.append("the quota failed open")
    tries, written = by_user(told.tries), by_user(found.others)
    blocked, raised = names_of(plan)[1][:2]
    for user in tries:
        most = plan.most_ids(seconds, RAISED if user == raised else RATE)
        if written[user] > most:
            problems.append(f"{user} got {written[user]} ids, {most:.0f} at most")
        if user != blocked and written[user] < RATE:
            problems.append(f"{user} got {written[user]} ids, less than its quota")
        if tries[user] < 2 * plan.most_ids(seconds):
            problems.append(f"{user} tried {tries[user]} times only")
    late = [
        one_s
        for name, moments in told.admitted_at_s.items()
        if name.startswith(blocked)
        for one_s in moments
        if one_s > reloaded_s + _RELOADED_WITHIN_S
    ]
    if late:
        problems.append(f"{blocked} got {len(late)} ids after it had been blocked")
    return problems


def by_user(counts: Mapping[str, int]) -> Counter[str]:
    """Sum what lanes of a user have."""
    sums: Counter[str] = Counter()
    for name, count in counts.items():
        sums[name.rpartition("-")[0]] += count
    return sums


def _as_json(crowd: Crowd, told: Outcome, found: Found) -> dict[str, Any]:
    tries, written = by_user(told.tries), by_user(found.others)
    rows, gateways = crowd.rows, range(len(crowd.stage.gateways))

    def most(what: str) -> float:
        return max((row[f"gw{number}_{what}"] for row in rows for number in gateways), default=0)

    return {
        "plan": crowd.plan.as_json(),
        "phases": [phase.as_json(told.latency[phase.name]) for phase in crowd.phases[:-1]],
        "records": {
            "acknowledged": sum(told.acknowledged.values()),
            "in_log": found.records - found.others.total(),
            "lost": len(found.lost),
            "doubled": len(found.doubled),
            "reordered": len(found.reordered),
            "in_flight_at_the_end": found.in_flight,
        },
        "refusals_within_quota": dict(told.refusals),
        "rogues": {user: {"tries": tries[user], "ids": written[user]} for user in sorted(tries)},
        "cores_while_all_are_there": cores_in(crowd, crowd.phases[1]),
        "most_connections_of_a_gateway": most("connections"),
        "most_rss_mb_of_a_gateway": most("rss_mb"),
        "clients_late_s": round(told.late_s, 3),
    }


def cores_in(crowd: Crowd, phase: Phase) -> dict[str, float]:
    """Return shares of a core: of each gateway, of all brokers, of all clients. Nothing may be started again there."""
    rows = [row for row in crowd.rows if row["phase"] == phase.name]
    if len(rows) < 2:
        return {}
    seconds = rows[-1]["seconds"] - rows[0]["seconds"]
    shares = [key for key in rows[0] if key.endswith("cpu_s")]
    return {key: round((rows[-1][key] - rows[0][key]) / seconds, 3) for key in shares}
