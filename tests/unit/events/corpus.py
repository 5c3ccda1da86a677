"""Events of every type, with every word that a field may hold: a history that gateway code has told (recorded.py),
and a morning at two gateways made up from the definitions, for what that history does not show.

    python -m tests.unit.events.corpus > tests/data/events-v<SCHEMA_VERSION>.jsonl

is run before SCHEMA_VERSION is raised; the file is kept for ever, and test_versions.py reads it.
"""

from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from pidgate.events.definitions import (
    BrokerPlace,
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    LifecycleEvent,
    LifecyclePhase,
    ProduceErrorEvent,
    QuotaInForce,
    ReasonWord,
    RefusalOutcomeEvent,
    RestoredFrom,
    TopicPlaces,
    TopologyEvent,
    TransactionalIdEvent,
)
from pidgate.events.redaction import redacted
from pidgate.events.writing import to_json
from tests.unit.events.recorded import recorded

WINDOW_MS = 3_600_000
TOKEN = WINDOW_MS * 1_000
START_WALL_MS = 1_795_248_000_000
REFUSING = ("sticky", "established", "queue", "deadline", "first_seen", "blocked")
UNCHARGED = ("refresh", "exempt", "grace", "inherited", "fail_open", "sticky", "established", "deadline")

_E = TypeVar("_E", bound=Event)


class Process:
    """One incarnation: counts its events, and lets a little time pass before each."""

    def __init__(self, gateway_id: str, incarnation: str, worker: int, booted_ms: int) -> None:
        self.envelope: dict[str, Any] = {
            "cluster": "5L6g3nShT-eMCtK--X86sw",
            "gateway_id": gateway_id,
            "incarnation": incarnation,
            "worker": worker,
        }
        self.seq = 0
        self.booted_ms = booted_ms

    def event(self, kind: type[_E], client: dict[str, Any] | None = None, **fields: Any) -> _E:
        self.seq += 1
        passed_ms = self.seq * 1_237
        times: dict[str, Any] = {
            "wall_time_ms": START_WALL_MS + passed_ms,
            "decision_time_ms": self.booted_ms + passed_ms,
        }
        return kind(**self.envelope, seq=self.seq, **times, **(client or {}), **fields)


def client(number: int, user: str, client_id: str, software: str, version: str) -> dict[str, Any]:
    return {
        "connection_id": number,
        "listener": "0.0.0.0:9292",
        "user": user,
        "client_id": client_id,
        "software_name": software,
        "software_version": version,
        "address": f"10.0.3.{number % 250}" if number % 2 else "2001:db8::17",
    }


CLIENTS = (
    client(1, "etl", "producer-1", "apache-kafka-java", "3.9.0"),
    client(2, 'jürgen \N{SNOWMAN} "quoted" {braces} \\ \'n', "rdkafka", "librdkafka", "2.6.1"),
    client(3, "CN=payments,OU=shop,O=Example", "\ufffd not utf-8 \U0001f600\n", "", ""),
    client(4, "", "unidentified", "aiokafka", "0.14.0"),
)


def decisions(process: Process) -> Iterator[Event]:
    """Every reason, admitted and refused, in and out of transactions."""
    for number, reason in enumerate(get_args(ReasonWord)):
        for refused in (False, True) if reason in REFUSING else (False,):
            tokens = None if reason in UNCHARGED else (100 - number) * TOKEN - 17
            after = tokens if tokens is None or refused or reason == "blocked" else tokens - TOKEN
            yield process.event(
                DecisionEvent,
                CLIENTS[number % len(CLIENTS)],
                producer_id=(1 << 40) + 1_000 * number + refused,
                epoch=number,
                transactional=number % 3 == 0,
                transactional_id_hash="h:0011223344556677" if number % 3 == 0 else None,
                topic="orders" if number % 2 else "AAECAwQFBgcICQoLDA0ODw",
                partition=number,
                base_sequence=number * 500,
                request_partitions=1 + number % 3,
                decision="refuse" if refused else "admit",
                reason=reason,
                would_refuse=reason == "observe",
                tokens_before=tokens,
                tokens_after=after,
                token_units=None if tokens is None else TOKEN,
                throttle_time_ms=9_876 if refused else 0,
                queue_position=number if reason == "queue" else None,
                waited_ms=12_345 if reason in ("queue", "deadline") else None,
                quota_version=1,
                applied_offsets=[] if number == 0 else [number, 0, 1 << 33],
                suppressed_count=3 if refused else 0,
            )


def traffic(process: Process) -> Iterator[Event]:
    """What clients did, besides being judged."""
    for number, who in enumerate(CLIENTS):
        yield process.event(ConnectionEvent, who, phase="open", node_id=None, count=1 + number)
        asked = number - 1
        yield process.event(
            InitProducerIdEvent,
            who,
            asked_producer_id=asked,
            asked_epoch=asked,
            answered_producer_id=-1 if number == 3 else 4_000 + number,
            answered_epoch=-1 if number == 3 else 0,
            error=53 if number == 3 else 0,
            node_id=number or None,
            transactional=number == 2,
        )
        yield process.event(
            TransactionalIdEvent,
            who,
            transactional_id_hash=f"h:{number:016x}",
            reason="first_seen" if number else "exempt",
            would_refuse=number == 2,
            tokens_after=number or None,
            token_units=TOKEN if number else None,
            quota_version=number,
        )
        yield process.event(
            IdUsageEvent,
            who,
            producer_id=4_000 + number,
            epoch=0,
            requests=10,
            batches=12,
            records=1_200,
            bytes=120_000,
            partitions=3,
            first_ms=START_WALL_MS,
            last_ms=START_WALL_MS + 60_000,
            connections=2,
        )
        yield process.event(
            ProduceErrorEvent, who, producer_id=asked, code=45, count=7, node_id=number or None
        )
        outcome = "gave_up" if number % 2 else "admitted"
        yield process.event(
            RefusalOutcomeEvent, who, producer_id=4_000, attempts=4, waited_ms=36_000, outcome=outcome
        )
    reasons = ("client", "reset", "idle", "drain", "protocol", "limit", "upstream", "sticky")
    for number, reason in enumerate(reasons):
        yield process.event(
            ConnectionEvent,
            CLIENTS[number % len(CLIENTS)],
            phase="close",
            node_id=number,
            principal_mechanism="SCRAM-SHA-512" if number % 2 else "",
            close_reason=reason,
            seconds=1.5 * number,
            bytes_in=1 << 34,
            bytes_out=200,
            requests=number,
        )


def config(process: Process) -> Event:
    return process.event(
        ConfigEvent,
        quota_version=1,
        mode="enforce" if process.seq else "observe",
        transactional="observe" if process.seq else "enforce",
        window_ms=WINDOW_MS,
        burst=1.5,
        remember_ms=86_400_000,
        layers=4,
        false_positive_rate=0.001,
        seed=None if process.seq else 42,
        max_throttle_ms=10_000,
        max_live_ids=10_000_000,
        queue=1_000,
        sticky_entries=20_000,
        default_rate_milli=None if process.seq else 100_000,
        cluster_rate_milli=5_000_000,
        quotas=[
            QuotaInForce(user="etl", rate_milli=100_000, owner="data@example.org", note="nightly"),
            QuotaInForce(user="batch", rate_milli=0, mode="observe", exempt=True),
            QuotaInForce(
                user="shop", mode="enforce", source="run_time", set_by="admin", set_wall_ms=START_WALL_MS
            ),
        ],
    )


def own_doings(process: Process) -> Iterator[Event]:
    """What gateways say about themselves."""
    yield config(process)
    for number, phase in enumerate(get_args(LifecyclePhase)):
        yield process.event(
            LifecycleEvent,
            phase=phase,
            mode="enforce" if number % 2 else "observe",
            window_ms=WINDOW_MS,
            remember_ms=86_400_000,
            grace_until_wall_ms=START_WALL_MS + WINDOW_MS if number == 0 else None,
            restored_ids=1_000 * number,
            restored_users=number,
            restored_from=get_args(RestoredFrom)[number % 3],
            text="gw-2, incarnation 77aa" if phase.startswith("member") else "",
            workers=1 + number,
        )
    brokers = [
        BrokerPlace(node_id=1, host="kafka-1", port=9092, rack="a"),
        BrokerPlace(node_id=2, host="::1", port=1),
    ]
    topics = [TopicPlaces(topic="orders", leaders=[1, -1], replicas=[[1, 2], []])]
    yield process.event(TopologyEvent, brokers=brokers, topics=topics, producer_id_expiration_ms=86_400_000)
    yield process.event(TopologyEvent, brokers=[], topics=[])
    yield config(process)


def corpus() -> Iterator[Event]:
    """All of it, in the order of a topic with one partition."""
    alone = Process("gw-1:9180", "6f1d09b2c3a4e5f7", 0, 86_400_000)
    state_owner = Process("gw-2:9180", "77aa12de90bc3f01", 0, 5_000)
    worker = Process("gw-2:9180", "77aa12de90bc3f01.w1-3", 1, 5_000)
    for process in (alone, state_owner):
        yield from own_doings(process)
    for process in (alone, worker):
        yield from decisions(process)
        yield from traffic(process)
    for hidden in decisions(alone):
        yield redacted(hidden, ["user", "client_id", "address"])
    yield redacted(config(state_owner), ["user"])


if __name__ == "__main__":
    for value in recorded():
        print(value.decode())
    for event in corpus():
        print(to_json(event).decode())
