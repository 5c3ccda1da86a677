"""Figures computed from the evidence per user, for the verifier."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidgate.load.journal import Entry, Outcome, ProducerJournal
from tools.sandbox.demo.evidence import Half
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, CLICKS, MALLORY, NIGHTLY, ORDERS, ROGUES_HOST
from tools.sandbox.log_checker import LogRecord, Verdict, check

REFUSED_EVENT = "producer_id_refused"


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from send to acknowledgement in a client's journal, after it has connected."""

    p50_ms: int
    p99_ms: int
    records: int


@dataclass(frozen=True, kw_only=True)
class MallorySaw:
    """Outcomes of mallory's ids by her own journals; names as in the summary."""

    brought: int
    admitted: int
    refused: int
    """Ids refused at least once."""
    refusals: int
    came_back: int
    """Refused ids that waited for the throttle time and retried."""
    admitted_after_waiting: int
    gave_up: int
    waiting_at_the_end: int
    """Refused, and neither admitted nor given up at the end."""
    connection_lost: int
    """Their connection ended without a response."""
    longest_wait_ms: int
    throttle_times_ms: tuple[int, int]
    """Minimum and maximum of her responses; (0, 0) without a refusal."""
    message: str
    """Her first refusal as logged."""
    error_codes: Mapping[int, int]
    client_ids: Sequence[str]
    hosts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class BystanderSaw:
    """A healthy user, by journal, client library and log."""

    user: str
    client: str
    client_id: str
    sent: int
    acknowledged: int
    failed: int
    unknown: int
    refused: int | None
    """None if the client was killed before it wrote its notes."""
    latency: Latency | None
    verdict: Verdict | None
    """The journal compared with the log; None if the log could not be read."""

    @classmethod
    def of(
        cls, journal: ProducerJournal, notes: Mapping[str, Any], log: Sequence[LogRecord] | None
    ) -> "BystanderSaw":
        return cls(
            user=journal.producer,
            client=notes.get("client", ""),
            client_id=notes.get("client_id", ""),
            sent=len(journal.entries),
            acknowledged=journal.count(Outcome.ACKNOWLEDGED),
            failed=journal.count(Outcome.FAILED),
            unknown=journal.count(Outcome.SENT),
            refused=notes.get("refused"),
            latency=latency(journal),
            verdict=None if log is None else check([journal], log),
        )

    @property
    def is_in_log_once(self) -> bool:
        return self.verdict is not None and self.verdict.is_good


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A user refused according to the gateway's log."""

    user: str
    client_ids: frozenset[str]
    hosts: frozenset[str]


def latency(journal: ProducerJournal) -> Latency | None:
    """Return the latency of records sent after the first acknowledgement, or None without any.

    Earlier records include the connection and login.
    """
    told = [entry for entry in journal.entries.values() if entry.outcome is Outcome.ACKNOWLEDGED]
    first_ms = min((entry.settled_ms for entry in told), default=0)
    times_ms = sorted(entry.settled_ms - entry.sent_ms for entry in told if entry.sent_ms >= first_ms)
    if not times_ms:
        return None
    return Latency(_percentile(times_ms, 50), _percentile(times_ms, 99), len(times_ms))


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the nearest-rank percentile."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


class Fate(StrEnum):
    """What became of a producer id that sends one batch."""

    ACKNOWLEDGED = "acknowledged"
    GAVE_UP = "gave up"
    LOST = "lost"
    """Given up without an answer to the last try."""
    WAITING = "waiting"
    """Refused, and neither acknowledged nor given up when the journal ended."""
    SENT = "sent"


def fate_of(entry: Entry) -> Fate:
    if entry.outcome is Outcome.ACKNOWLEDGED:
        return Fate.ACKNOWLEDGED
    if entry.outcome is Outcome.FAILED:
        return Fate.GAVE_UP
    if entry.is_settled:
        return Fate.LOST
    return Fate.WAITING if entry.refusals else Fate.SENT


def ids_refused(journal: ProducerJournal) -> int:
    """Count the producer ids that were refused at least once."""
    return sum(bool(entry.refusals) for entry in journal.entries.values())


def ids_by(journal: ProducerJournal) -> Counter[Fate]:
    return Counter(fate_of(entry) for entry in journal.entries.values())


def mallory_ids(half: Half) -> dict[int, Entry]:
    """Producer id to its entry, over all of her processes."""
    return {
        producer_id: entry
        for journal in half.mallory.values()
        for (_, producer_id), entry in journal.entries.items()
    }


def mallory_saw(half: Half) -> MallorySaw:
    entries = list(mallory_ids(half).values())
    refused = [entry for entry in entries if entry.refusals]
    fates, fates_of_refused = Counter(map(fate_of, entries)), Counter(map(fate_of, refused))
    refusals = sorted((refusal for entry in refused for refusal in entry.refusals), key=lambda it: it.at_ms)
    throttles_ms = [refusal.throttle_time_ms for refusal in refusals] or [0]
    return MallorySaw(
        brought=len(entries),
        admitted=fates[Fate.ACKNOWLEDGED],
        refused=len(refused),
        refusals=len(refusals),
        came_back=sum(len(one.refusals) > 1 or one.outcome is Outcome.ACKNOWLEDGED for one in refused),
        admitted_after_waiting=fates_of_refused[Fate.ACKNOWLEDGED],
        gave_up=fates[Fate.GAVE_UP],
        waiting_at_the_end=fates[Fate.WAITING],
        connection_lost=fates[Fate.LOST],
        longest_wait_ms=max((one.settled_ms - one.sent_ms for one in refused if one.is_settled), default=0),
        throttle_times_ms=(min(throttles_ms), max(throttles_ms)),
        message=refusals[0].message if refusals else "",
        error_codes=dict(Counter(refusal.error_code for refusal in refusals)),
        client_ids=sorted(name for name, journal in half.mallory.items() if journal.entries),
        hosts=[ROGUES_HOST] if entries else [],
    )


def bystander_saw(half: Half, user: str) -> BystanderSaw:
    return BystanderSaw.of(half.bystanders[user], half.notes[user], half.broker.log.get(ORDERS))


def nightly_verdict(half: Half) -> Verdict | None:
    """Return carol's journal compared with the log; None if the log could not be read."""
    if NIGHTLY not in half.broker.log:
        return None
    return check([half.carol], half.broker.log[NIGHTLY])


def ids_in_log(half: Half) -> dict[str, int]:
    """Return the number of producer ids per user in the broker's segments; each topic has known writers."""
    segments = half.broker.segments
    return {
        MALLORY: len(segments[CLICKS].ids),
        CAROL: len(segments[NIGHTLY].ids),
        f"{ALICE} and {BOB}": len(segments[ORDERS].ids),
    }


def states_in_log(half: Half) -> int:
    """Return the number of (producer id, partition) pairs."""
    return sum(topic.states for topic in half.broker.segments.values())


def refused_by_gateway(half: Half) -> list[Refused]:
    """Return the refused users from the gateway's log."""
    if half.gateway is None:
        return []
    by_user: dict[str, list[Mapping[str, Any]]] = {}
    for event in half.gateway.log_events:
        if event.get("event") == REFUSED_EVENT:
            by_user.setdefault(str(event.get("user")), []).append(event)
    return [
        Refused(
            user=user,
            client_ids=frozenset(str(event.get("client_id")) for event in events),
            hosts=frozenset(host(str(event.get("address"))) for event in events),
        )
        for user, events in sorted(by_user.items())
    ]


def host(address: str) -> str:
    """Return the address without the port."""
    return address.rpartition(":")[0] or address
