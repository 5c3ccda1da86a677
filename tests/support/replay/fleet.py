"""Two gateways of a fleet on paper, which write what real ones would write: `quota.Admission` behind clocks that are
known to the millisecond, and a topic that is read as soon as it was written.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import count
from random import Random
from typing import Any

from pidgate.events.definitions import (
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    LifecycleEvent,
    QuotaInForce,
)
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Close, Decision, Forward, Refuse, Verdict
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota, rate_milli

APPENDED_AFTER_MS = 7
BEGAN_WALL_MS = 1_790_000_000_000
Told = dict[str, Any]

SETTINGS = ProducerIdSettings(
    window_ms=60_000, remember_ms=120_000, layers=4, max_throttle_ms=1_000, false_positive_rate=1e-6
)
USERS = {"alice": 12, "bob": 30}
QUOTAS = Quotas(
    Mode.ENFORCE, SETTINGS, users={user: UserQuota(rate_milli(rate)) for user, rate in USERS.items()}
)


@dataclass
class PaperTopic:
    """One partition. `records`: what was written, with the decision, and when the broker had it (wall clock)."""

    records: list[tuple[int, Told, Decision | None]] = field(default_factory=list)

    def write(self, event: Any, decision: Decision | None) -> None:
        told = {"type": event.type, **asdict(event)}
        told["kafka_partition"], told["kafka_offset"] = 0, len(self.records)
        told["append_time_ms"] = event.wall_time_ms + APPENDED_AFTER_MS
        self.records.append((told["append_time_ms"], told, decision))


class PaperGateway:
    """One process. `ahead_ms`: its monotonic clock minus the wall's."""

    def __init__(
        self, gateway_id: str, incarnation: str, ahead_ms: int, topic: PaperTopic, wall_ms: int
    ) -> None:
        self.name = {"cluster": "paper", "gateway_id": gateway_id, "incarnation": incarnation}
        self.ahead_ms, self.topic = ahead_ms, topic
        self.seq, self.next_offset = 0, 0
        self.muted: dict[int, int] = {}
        now_ms = wall_ms + ahead_ms
        seeds = count(77)
        self.state = ProducerIdQuota(QUOTAS, seeds.__next__, now_ms, is_restored=False)
        self.admission = Admission(QUOTAS, seeds.__next__, now_ms, state=self.state)
        self._tell(LifecycleEvent, wall_ms, phase="start", **_SHAPE)
        self._tell(ConfigEvent, wall_ms, **_CONFIG)
        self._restore(wall_ms)
        self.state.end_restoring()
        self._tell(LifecycleEvent, wall_ms, phase="caught_up", restored_from="topic", **_SHAPE)

    def _tell(self, kind: Any, wall_ms: int, made: Decision | None = None, /, **words: Any) -> None:
        self.seq += 1
        stamp = {"seq": self.seq, "wall_time_ms": wall_ms, "decision_time_ms": wall_ms + self.ahead_ms}
        self.topic.write(kind(**self.name, **stamp, **words), made)

    def _restore(self, wall_ms: int) -> None:
        newest: dict[str, tuple[int, int]] = {}
        now_ms = wall_ms + self.ahead_ms
        for append_ms, _, decision in self._new(wall_ms):
            if decision is None or decision.user is None:
                continue
            if decision.admitted:
                self.state.restorer.restore_id(
                    decision.user, decision.producer_id, append_ms + self.ahead_ms, now_ms
                )
            else:
                self.admission.sticky.watch_refused_elsewhere(decision.user, decision.producer_id, now_ms)
            if decision.tokens_after is not None:
                newest[decision.user] = decision.tokens_after, append_ms + self.ahead_ms
        for user, (units, at_ms) in newest.items():
            self.state.restorer.restore_tokens(user, units, SETTINGS.window_ms * 1000, at_ms)

    def _new(self, wall_ms: int) -> list[tuple[int, Told, Decision | None]]:
        """What has come to the topic since it was last read. Unlike time, it is in order."""
        found = []
        while (
            self.next_offset < len(self.topic.records) and self.topic.records[self.next_offset][0] <= wall_ms
        ):
            found.append(self.topic.records[self.next_offset])
            self.next_offset += 1
        return found

    def produce(
        self, client: Client, batch: tuple[int, int, int, bytes, int], wall_ms: int
    ) -> Verdict | None:
        """None: it waits behind the mute."""
        now_ms = wall_ms + self.ahead_ms
        for append_ms, told, decision in self._new(wall_ms):
            if decision is None or told["incarnation"] == self.name["incarnation"]:
                continue
            at_ms = append_ms + self.ahead_ms
            if decision.admitted:
                self.state.admitted_elsewhere(decision.user, decision.producer_id, at_ms, decision.reason)
            else:
                self.admission.sticky.watch_refused_elsewhere(decision.user, decision.producer_id, at_ms)
        judged: Verdict | None
        if now_ms < self.muted.get(client.connection_id, 0):
            judged = self.admission.judge_while_muted(client, [batch], transactional=False, now_ms=now_ms)
        else:
            judged = self.admission.judge(client, [batch], transactional=False, now_ms=now_ms)
        if judged is None:
            return None
        if isinstance(judged, Close):
            self.close(client, wall_ms)
            return judged
        assert isinstance(judged, (Forward, Refuse))
        muted_ms = self.muted.get(client.connection_id, 0)
        if isinstance(judged, Refuse) and (judged.rearms_mute or now_ms >= muted_ms):
            self.muted[client.connection_id] = max(muted_ms, now_ms + judged.throttle_time_ms)
        for decision in judged.decisions:
            self._decided(client, decision, wall_ms)
        return judged

    def _decided(self, client: Client, decision: Decision, wall_ms: int) -> None:
        self._tell(
            DecisionEvent,
            wall_ms,
            decision,
            connection_id=client.connection_id,
            user=client.user or "",
            client_id=client.client_id,
            address=client.address,
            producer_id=decision.producer_id,
            epoch=decision.epoch,
            transactional=False,
            topic=decision.topic.decode(),
            partition=decision.partition,
            base_sequence=decision.base_sequence,
            request_partitions=1,
            decision="admit" if decision.admitted else "refuse",
            reason=decision.reason.value,
            would_refuse=decision.would_refuse,
            tokens_before=decision.tokens_before,
            tokens_after=decision.tokens_after,
            throttle_time_ms=decision.throttle_time_ms,
            queue_position=decision.queue_position,
            waited_ms=decision.waited_ms,
            quota_version=1,
            applied_offsets=[self.next_offset],
        )

    def close(self, client: Client, wall_ms: int) -> None:
        words = {"connection_id": client.connection_id, "user": client.user or ""}
        self._tell(ConnectionEvent, wall_ms, phase="close", node_id=None, **words)
        self.admission.connection_closed(client.connection_id, wall_ms + self.ahead_ms)


_SHAPE: Told = {"mode": "enforce", "window_ms": SETTINGS.window_ms, "remember_ms": SETTINGS.remember_ms}
_CONFIG: Told = {
    "quota_version": 1,
    "mode": "enforce",
    "transactional": "observe",
    "window_ms": SETTINGS.window_ms,
    "burst": 1.0,
    "remember_ms": SETTINGS.remember_ms,
    "layers": SETTINGS.layers,
    "false_positive_rate": SETTINGS.false_positive_rate,
    "max_throttle_ms": SETTINGS.max_throttle_ms,
    "max_live_ids": SETTINGS.max_live_ids,
    "queue": SETTINGS.queue,
    "sticky_entries": SETTINGS.sticky_entries,
    "quotas": [QuotaInForce(user=user, rate_milli=rate_milli(rate)) for user, rate in USERS.items()],
}


@dataclass
class _Producer:
    """One id that sends batch after batch, and what was refused again; `is_cut`: its
    connection was closed on it."""

    client: Client
    gateway: int
    producer_id: int
    next_at_ms: int
    sequence: int = 0
    refused: list[int] = field(default_factory=list)
    is_cut: bool = False


def recorded_fleet(seed: int, *, lasts_ms: int = 150_000, pipelines: bool = False) -> list[Told]:
    """Some minutes of two gateways; in the middle the second one is started anew."""
    random, topic, ids, connections = Random(seed), PaperTopic(), count(1), count(1)
    aheads = (-BEGAN_WALL_MS + 1_000_000, -BEGAN_WALL_MS + 77_000_123)
    gateways = [PaperGateway(f"gw-{n}", f"run{n}", aheads[n], topic, BEGAN_WALL_MS) for n in (0, 1)]
    producers: list[_Producer] = []
    has_restarted = False
    for wall_ms in range(BEGAN_WALL_MS + 50, BEGAN_WALL_MS + lasts_ms, 10):
        if not has_restarted and wall_ms > BEGAN_WALL_MS + lasts_ms // 2:
            has_restarted = True
            gateways[1] = PaperGateway("gw-1", "run2", aheads[1], topic, wall_ms)
            producers = [one for one in producers if one.gateway == 0]
        if random.random() < 0.01:
            user = random.choice(list(USERS))
            client = Client(user, random.choice("xy"), random.choice(("a", "b")), next(connections))
            producers.append(_Producer(client, random.randrange(2), next(ids), wall_ms))
        for producer in [one for one in producers if one.next_at_ms <= wall_ms]:
            _send(gateways[producer.gateway], producer, wall_ms, pipelines)
            producer.next_at_ms = wall_ms + random.randrange(200, 1_500)
            if producer.is_cut:
                producers.remove(producer)
            elif random.random() < (0.002 if pipelines else 0.05):
                producers.remove(producer)
                gateways[producer.gateway].close(producer.client, wall_ms)
    return [told for _, told, _ in topic.records]


def _send(gateway: PaperGateway, producer: _Producer, wall_ms: int, pipelines: bool) -> None:
    """What was refused first, in its order; then something new, or with `pipelines` three at once."""
    again, producer.refused = sorted(producer.refused), []
    new = [] if again else [producer.sequence + n for n in range(3 if pipelines else 1)]
    producer.sequence += len(new)
    for sequence in [*again, *new]:
        batch = (producer.producer_id, 0, sequence, b"t", 0)
        verdict = gateway.produce(producer.client, batch, wall_ms)
        if isinstance(verdict, Close):
            producer.is_cut = True
            return
        if not isinstance(verdict, Forward):
            producer.refused.append(sequence)
