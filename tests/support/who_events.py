"""Streams of events as gateways write them, for `pidgate who`: producers by the dozen, with one line each."""

from __future__ import annotations

from dataclasses import dataclass, field

from pidgate.events.definitions import (
    ConfigEvent,
    DecisionEvent,
    DecisionWord,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    LifecycleEvent,
    ProduceErrorEvent,
    QuotaInForce,
    ReasonWord,
)
from pidgate.events.writing import to_json

HOUR_MS = 3_600_000
START_MS = 1_795_268_400_000
"""2026-11-21 13:40 UTC."""
JAVA = ("apache-kafka-java", "3.7.0")


@dataclass(kw_only=True)
class Client:
    """Who a producer is to the gateway."""

    user: str = "alice"
    client_id: str = "etl"
    address: str = "10.0.3.7"
    software: tuple[str, str] = JAVA
    node_id: int = 1


@dataclass
class Stream:
    """Events of one gateway, in order of their making once `events` is asked for."""

    incarnation: str = "run1"
    gateway_id: str = "gw-a:9290"
    cluster: str = "MkU3OEVBNTcwNTJENDM2Qg"
    next_id: int = 5_000
    _made: list[tuple[int, type[Event], dict[str, object]]] = field(default_factory=list)
    _connections: int = 0

    def connection(self) -> int:
        self._connections += 1
        return self._connections

    def allocate(self, client: Client, at_ms: int, **changed: object) -> int:
        """An answer to InitProducerId with a new id."""
        self.next_id += 1
        answer: dict[str, object] = {
            "asked_producer_id": -1,
            "asked_epoch": -1,
            "answered_producer_id": self.next_id - 1,
            "answered_epoch": 0,
            "error": 0,
            "node_id": client.node_id,
            "transactional": False,
        }
        self.make(InitProducerIdEvent, at_ms, client, **(answer | changed))
        return self.next_id - 1

    def make_bump(self, client: Client, at_ms: int, producer_id: int, epoch: int = 1) -> None:
        """A transactional producer starts anew: the same id, another epoch."""
        self.allocate(
            client, at_ms, answered_producer_id=producer_id, answered_epoch=epoch, transactional=True
        )
        self.next_id -= 1

    def decide(
        self,
        client: Client,
        at_ms: int,
        producer_id: int,
        decision: DecisionWord = "admit",
        reason: ReasonWord = "observe",
        **changed: object,
    ) -> None:
        told: dict[str, object] = {
            "producer_id": producer_id,
            "epoch": 0,
            "transactional": False,
            "topic": "orders",
            "partition": 0,
            "base_sequence": 0,
            "request_partitions": 1,
            "decision": decision,
            "reason": reason,
            "quota_version": 1,
        }
        self.make(DecisionEvent, at_ms, client, **(told | changed))

    def use(
        self, client: Client, producer_id: int, first_ms: int, last_ms: int, requests: int, **changed: object
    ) -> None:
        """What was forwarded of an id, told when its connections closed."""
        told: dict[str, object] = {
            "producer_id": producer_id,
            "epoch": 0,
            "requests": requests,
            "batches": requests,
            "records": requests,
            "bytes": 500 * requests,
            "partitions": 1,
            "first_ms": first_ms,
            "last_ms": last_ms,
            "connections": 1,
        }
        self.make(IdUsageEvent, last_ms + 10, client, **(told | changed))

    def error(self, client: Client, producer_id: int, at_ms: int, code: int) -> None:
        """An error in brokers' answers."""
        self.make(ProduceErrorEvent, at_ms, client, producer_id=producer_id, code=code, count=1, node_id=1)

    def producer(
        self,
        client: Client,
        at_ms: int,
        *,
        life_ms: int | None = None,
        requests: int = 1,
        connection: int | None = None,
        would_refuse: bool = False,
    ) -> int:
        """One producer under observe, from its start to its end; `life_ms` None: it goes on. Returns its id."""
        connection = self.connection() if connection is None else connection
        producer_id = self.allocate(client, at_ms, connection_id=connection)
        self.decide(client, at_ms + 20, producer_id, connection_id=connection, would_refuse=would_refuse)
        if life_ms is not None:
            self.use(
                client, producer_id, at_ms + 20, at_ms + 20 + life_ms, requests, connection_id=connection
            )
        return producer_id

    def config(self, at_ms: int, default_rate: int | None, **rates: int) -> None:
        self.make(
            ConfigEvent,
            at_ms,
            None,
            quota_version=1,
            mode="observe",
            transactional="observe",
            window_ms=HOUR_MS,
            burst=1.0,
            remember_ms=24 * HOUR_MS,
            layers=4,
            false_positive_rate=0.001,
            max_throttle_ms=10_000,
            max_live_ids=10_000_000,
            queue=1_000,
            sticky_entries=20_000,
            default_rate_milli=None if default_rate is None else 1_000 * default_rate,
            quotas=[QuotaInForce(user=user, rate_milli=1_000 * rate) for user, rate in rates.items()],
        )

    def alive(self, at_ms: int) -> None:
        self.make(
            LifecycleEvent,
            at_ms,
            None,
            phase="alive",
            mode="observe",
            window_ms=HOUR_MS,
            remember_ms=24 * HOUR_MS,
            grace_until_wall_ms=None,
        )

    def make(self, kind: type[Event], at_ms: int, client: Client | None, **fields: object) -> None:
        """Any event."""
        if client is not None:
            fields |= {
                "user": client.user,
                "client_id": client.client_id,
                "address": client.address,
                "software_name": client.software[0],
                "software_version": client.software[1],
            }
        self._made.append((at_ms, kind, fields))

    def events(self) -> list[Event]:
        """All of them, numbered by time."""
        return [
            kind(
                cluster=self.cluster,
                gateway_id=self.gateway_id,
                incarnation=self.incarnation,
                seq=seq,
                wall_time_ms=at_ms,
                decision_time_ms=at_ms - START_MS,
                **fields,  # type: ignore[arg-type]
            )
            for seq, (at_ms, kind, fields) in enumerate(sorted(self._made, key=lambda made: made[0]), start=1)
        ]

    def values(self) -> list[bytes]:
        return [to_json(event) for event in self.events()]
