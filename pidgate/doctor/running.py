"""Checks of a running gateway, from the answers of its admin address. No broker is asked for them. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pidgate.client_faults import CLIENT_FAULTS
from pidgate.doctor.findings import Checks, State, failed, warning
from pidgate.gateway.present.pages import Page
from pidgate.gateway.proxy.waits import BY_ID_QUOTA, Why
from pidgate.units import about_duration, counted

JsonObject = dict[str, Any]
Samples = Mapping[tuple[str, str], float]
"""Of a scrape, by name and the value of its only label."""

MANY_EVENTS: Final = 10_000
"""Events not acknowledged yet: seconds of a busy gateway."""

BY_QUOTA: Final = BY_ID_QUOTA | {
    Why.NEW_PRODUCER,
    Why.TRANSACTIONAL_IDS,
    Why.PRODUCED_BYTES,
    Why.FETCHED_BYTES,
    Why.CONNECTION_RATE,
}
BY_BROKER: Final = frozenset(
    (Why.LOGIN, Why.ANSWER, Why.QUOTA_CHANGE, Why.CONNECTING, Why.BROKER_BUSY, Why.IN_FLIGHT)
)
BY_CLIENT: Final = frozenset((Why.NOT_READING,))

TITLES: Final = {
    Page.NOT_READY: "the gateway is ready",
    Page.LOOP_SLOW: "the gateway's event loop is on time",
    Page.BROKER_DOWN: "brokers answer",
    Page.BROKER_SLOW: "brokers answer quickly",
    Page.WAITS_LONG: "no client waits for long",
    Page.FAILED_OPEN: "the quota's code has decided every request",
    Page.LIMIT_HIT: "no limit was hit lately",
    Page.RELOAD_REFUSED: "the configuration file is in force",
    Page.RESTART_NEEDED: "no setting waits for a restart",
    Page.ALL_OBSERVED: "quotas are in force as the file says",
    Page.GRACE: "there is no grace",
    Page.TOPIC_UNAVAILABLE: "the events topic is written",
    Page.EVENTS_LOST: "no event was lost",
    Page.CHANGES_STAY: "changes reach every gateway",
    Page.FUSE: "the fuse enforces no user",
    Page.MEMBER_SILENT: "the other gateways are heard",
    Page.MEMBERS_DIFFER: "gateways have the same settings",
    Page.CLIENT_FAULT: "no client library is known to break",
    Page.OPEN_FILES: "there are free descriptors",
    Page.NOT_SAVED: "the state is saved",
}
"""In the order of the answer: what is slow first."""

_GRAVE: Final = frozenset(
    (
        Page.FAILED_OPEN,
        Page.LOOP_SLOW,
        Page.RELOAD_REFUSED,
        Page.TOPIC_UNAVAILABLE,
        Page.EVENTS_LOST,
        Page.CHANGES_STAY,
    )
)
"""Failures, although no client loses records yet."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a gateway has answered: two views of the page, who waits, and a scrape."""

    first: JsonObject
    around: JsonObject
    waiting: JsonObject
    samples: Samples


def check_running(checks: Checks, answers: Answers) -> None:
    """Add a finding for each page of TITLES."""
    problems: dict[str, list[tuple[State, str, str]]] = {}
    for alert in answers.first["alerts"]:
        is_failure = alert["loses"] or alert["page"] in _GRAVE
        text = (failed if is_failure else warning)(alert["text"])
        problems.setdefault(alert["page"], []).append(text)
    for page, problem in _problems(answers):
        problems.setdefault(page, []).append(problem)
    measured = _measured(answers)
    for page, title in TITLES.items():
        more = measured.get(page, "")
        checks.add(
            f"{title}{more and f': {more}'}" if page not in problems else title, page, problems.get(page, ())
        )


def verdict(answers: Answers) -> str:
    """Return which part is slow now, in a sentence."""
    pages = {alert["page"] for alert in answers.first["alerts"]}
    down = [row["node_id"] for row in answers.around["brokers"] if row["is_up"] is False]
    named = f"broker {', '.join(map(str, down))}"
    if Page.LOOP_SLOW in pages:
        return "It is this gateway: its event loop is late." + (
            f" Besides, {named} does not answer." if down else ""
        )
    if down:
        return f"It is the cluster: {named} does not answer. This gateway is on time."
    silent = [row["node_id"] for row in answers.around["brokers"] if row["silent"]]
    if Page.BROKER_SLOW in pages or silent:
        slow = ", ".join(map(str, silent)) if silent else "see above"
        return f"It is the cluster: broker {slow} is slow. This gateway is on time."
    throttled = _count_waits(answers, BY_QUOTA)
    if throttled:
        return f"It is the quotas: {counted(throttled, 'client')} throttled. Gateway and brokers are on time."
    return "Neither the gateway nor a broker is slow now, and no client is throttled."


def _problems(answers: Answers) -> Iterator[tuple[Page, tuple[State, str, str]]]:
    """Yield problems that only counters show: the gateway's alerts do not include them."""
    samples = answers.samples
    is_late = any(alert["page"] == Page.LOOP_SLOW for alert in answers.first["alerts"])
    for row in answers.around["brokers"]:
        if row["silent"] and row["is_up"] and not is_late:
            waiting = f"{counted(row['silent'], 'connection')} waited more than 3 s for an answer"
            yield Page.BROKER_SLOW, failed(f"Broker {row['node_id']}: {waiting}")
    buffered = samples.get(("pidgate_events_buffered", ""), 0)
    if buffered > MANY_EVENTS:
        yield Page.TOPIC_UNAVAILABLE, warning(f"{buffered:,.0f} events wait to be acknowledged")
    if differences := samples.get(("pidgate_fleet_differences_total", ""), 0):
        text = f"{counted(round(differences), 'setting')} of another gateway differed (fleet_member_differs in the log)"
        yield Page.MEMBERS_DIFFER, warning(text, "give all gateways one file")
    for fault in CLIENT_FAULTS:
        if many := samples.get(("pidgate_client_faults_total", fault.key), 0):
            text = f"{fault.clients}: {counted(round(many), 'connection')} since the start; {fault.breaks}"
            yield Page.CLIENT_FAULT, warning(text, fault.remedy)
    if seconds := samples.get(("pidgate_open_files_exhausted_total", ""), 0):
        text = f"there was no free descriptor for {seconds:,.0f} s since the start"
        yield Page.OPEN_FILES, failed(text, "raise LimitNOFILE, or lower limits.connections")
    if failures := samples.get(("pidgate_state_save_failures_total", ""), 0):
        yield Page.NOT_SAVED, failed(f"{counted(round(failures), 'snapshot')} could not be written")


def _measured(answers: Answers) -> dict[str, str]:
    """Return measurements, shown where a check is OK."""
    head, brokers = answers.first["head"], answers.around["brokers"]
    slowest = max((row["answer_ms"] for row in brokers if row["answer_ms"] is not None), default=None)
    found: dict[str, str] = {
        Page.LOOP_SLOW: f"late for {head['loop_late']:.1%} of the last 10 s",
        Page.BROKER_DOWN: f"{head['brokers_up']} of {head['brokers']}",
        Page.WAITS_LONG: _waits(answers),
        Page.TOPIC_UNAVAILABLE: f"{answers.samples.get(('pidgate_events_buffered', ''), 0):,.0f} events wait",
    }
    if slowest is not None:
        found[Page.BROKER_SLOW] = f"the slowest in {slowest:.0f} ms"
    return found


def _waits(answers: Answers) -> str:
    head = answers.first["head"]
    if not head["waiting"]:
        return "none waits at all"
    sides = {
        "a quota": _count_waits(answers, BY_QUOTA),
        "a broker": _count_waits(answers, BY_BROKER),
        "itself": _count_waits(answers, BY_CLIENT),
    }
    by = ", ".join(f"{many} for {side}" for side, many in sides.items() if many)
    longest = about_duration(head["oldest_wait_ms"])
    return f"{counted(head['waiting'], 'client')} ({by or 'for this gateway'}), the longest {longest}"


def _count_waits(answers: Answers, whys: frozenset[Why]) -> int:
    by_why = Counter(row["why"] for row in answers.waiting["waits"]["rows"])
    return sum(by_why[why] for why in whys)
