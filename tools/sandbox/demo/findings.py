"""Figures computed from the evidence per user, for the verifier."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.sandbox.demo.evidence import Half
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, CLICKS, MALLORY, NIGHTLY, ORDERS
from tools.sandbox.journal import Outcome, ProducerJournal
from tools.sandbox.log_checker import LogRecord, Verdict, check
from tools.sandbox.producers.batch_journal import IdLife

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


def mallory_lives(half: Half) -> dict[int, IdLife]:
    """Return the life of each producer id, over all of her processes."""
    return {producer_id: life for journal in half.mallory for producer_id, life in journal.lives.items()}


def mallory_saw(half: Half) -> MallorySaw:
    lives = list(mallory_lives(half).values())
    refused = [life for life in lives if life.refusals]
    refusals = sorted((refusal for life in refused for refusal in life.refusals), key=lambda it: it.at_ms)
    throttles_ms = [refusal.throttle_time_ms for refusal in refusals] or [0]
    return MallorySaw(
        brought=len(lives),
        admitted=sum(life.is_acknowledged for life in lives),
        refused=len(refused),
        refusals=len(refusals),
        came_back=sum(len(life.refusals) > 1 or life.is_acknowledged for life in refused),
        admitted_after_waiting=sum(life.is_acknowledged for life in refused),
        gave_up=sum(life.gave_up for life in lives),
        waiting_at_the_end=sum(not life.is_settled for life in refused),
        connection_lost=sum(life.lost_ms >= 0 for life in lives),
        longest_wait_ms=max((life.waited_ms for life in refused), default=0),
        throttle_times_ms=(min(throttles_ms), max(throttles_ms)),
        message=refusals[0].message if refusals else "",
        error_codes=dict(Counter(refusal.error_code for refusal in refusals)),
        client_ids=sorted({life.producer for life in lives}),
        hosts=sorted({host(life.address) for life in lives}),
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
