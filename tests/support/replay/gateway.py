"""One process of a gateway, replayed from its start to its end.

It does what the gateway does around `quota.Admission`: quotas are set, a state is restored, other gateways' events are
followed, connections come and go, and refusals mute a channel. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Decision, Forward, ProducerBatch, Reason, Refuse, Verdict
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from tests.support.replay.recorded import RecordedEvent, pieces_of, quotas_of, run_of
from tests.support.replay.silent import pass_in_silence
from tests.support.replay.topic import Record, Topic, Watch, follow, restore

SWEPT_EVERY_MS = 1_000
_CHANGING = frozenset({"config", "lifecycle"})
"""Events that change what a gateway does; what was heard before them counts before them."""


@dataclass(slots=True)
class _Channel:
    """A connection. `predecessors`: by an id that was handed out on it, the id it took the place of."""

    client: Client
    muted_until_ms: int = 0
    ids: set[int] = field(default_factory=set)
    predecessors: dict[int, int] = field(default_factory=dict)


class GatewayReplay:
    """Feed it `take` with its events in order; before each, `needs` says what has to be known of the topic."""

    def __init__(self, incarnation: str, topic: Topic) -> None:
        self._run = run_of(incarnation)
        self._topic = topic
        self._seeds = count(1)  # the filters' random seeds are not told: false positives are the replay's own
        self._quota_version = -1
        self._quotas = Quotas()
        self._real: ProducerIdQuota | None = None
        self._admission: Admission | None = None
        self._is_restored = False
        self._ahead_ms: int | None = None
        self._channels: dict[int, _Channel] = {}
        self._applied: dict[int, int] = {}
        self._latest_ms = self._swept_ms = 0
        """Arrivals before the quotas in force are known: the recording begins in the middle."""

    # ---- what has to be known before -------------------------------------------------------------------

    def needs(self, event: RecordedEvent, arrival: RecordedEvent | None) -> Mapping[int, int]:
        """By partition of the topic: the offset below which everything has to have been decided.

        `arrival` is the process's next one: this event, or the first after it; None: there is none.
        """
        if event is arrival:
            return dict(enumerate(event["applied_offsets"]))
        if _is_caught_up(event):
            return self._restored_from(event, arrival)
        heard = pieces_of(arrival) if self._is_restored and event["type"] in _CHANGING else ()
        return {
            one["partition"]: one["next_offset"] for one in heard if one["at_ms"] <= event["decision_time_ms"]
        }

    def _restored_from(self, event: RecordedEvent, arrival: RecordedEvent | None) -> dict[int, int]:
        """What a state that is now there was restored from: what was in the topic, is said to have been read, and not
        to have been heard afterwards.
        """
        there = self._topic.appended_until(event["wall_time_ms"])
        if arrival is None:
            return there
        read = dict(enumerate(arrival["applied_offsets"]))
        for piece in pieces_of(arrival):
            read[piece["partition"]] = min(read[piece["partition"]], piece["first_offset"])
        return {number: min(end, read.get(number, 0)) for number, end in there.items()}

    # ---- its events ------------------------------------------------------------------------------------

    def take(self, event: RecordedEvent, arrival: RecordedEvent | None) -> Decision | None:
        """The next event, with the next arrival as in `needs`. Returns what is decided of an arrival; None: nothing,
        or it is no arrival.
        """
        now_ms = event["decision_time_ms"]
        if self._ahead_ms is None:
            self._ahead_ms = now_ms - event["wall_time_ms"]
        kind = event["type"]
        if self._is_restored and kind in _CHANGING and arrival is not None:
            self._hear_others(arrival, now_ms)
        if kind == "config":
            self._set_quotas(event, now_ms)
        if self._admission is None or self._real is None:
            return None
        if kind == "lifecycle":
            self._live_on(event, arrival, now_ms, self._admission, self._real)
        elif kind == "connection":
            self._connection(event, now_ms, self._admission)
        elif kind == "init_producer_id" and event["connection_id"] is not None:
            channel = self._channel(event)
            channel.predecessors[event["answered_producer_id"]] = event["asked_producer_id"]
        elif kind == "decision":
            return self._arrival(event, now_ms, self._admission, self._real)
        return None

    @property
    def token_units(self) -> int:
        """Of one token now."""
        return self._quotas.producer_ids.window_ms * 1000

    def waiting(self, event: RecordedEvent) -> int:
        """Return how many ids of the event's user wait in its queue."""
        user = event["user"]
        return self._real.status(user, 0).waiting if self._real is not None else 0

    def _set_quotas(self, event: RecordedEvent, now_ms: int) -> None:
        """Quotas that are told once more are no change."""
        if event["quota_version"] == self._quota_version:
            return
        self._quota_version, self._quotas = event["quota_version"], quotas_of(event)
        if self._admission is None or self._real is None:
            self._real = ProducerIdQuota(self._quotas, self._seeds.__next__, now_ms, is_restored=False)
            self._admission = Admission(self._quotas, self._seeds.__next__, now_ms, state=self._real)
            return
        self._admission.set_quotas(self._quotas, now_ms)

    def _live_on(
        self,
        event: RecordedEvent,
        arrival: RecordedEvent | None,
        now_ms: int,
        admission: Admission,
        real: ProducerIdQuota,
    ) -> None:
        if event["phase"] == "member_seen":
            real.in_fleet = True
        if _is_caught_up(event):
            told_ms = event.get("clock_ahead_ms")
            self._ahead_ms = self._ahead_ms if told_ms is None else told_ms
            self._restore(self._restored_from(event, arrival), real, admission, now_ms)
        if event["grace_until_wall_ms"] is not None and event["phase"] != "stop":
            real.begin_grace(now_ms + event["grace_until_wall_ms"] - event["wall_time_ms"])
        if _is_caught_up(event):
            real.hand_over(now_ms)
            real.end_restoring()
            self._is_restored = True

    def _restore(
        self, restored_from: Mapping[int, int], real: ProducerIdQuota, admission: Admission, now_ms: int
    ) -> None:
        records: list[Record] = []
        for number, end in restored_from.items():
            records += self._topic.between(number, self._applied.get(number, 0), end)
            self._applied[number] = end
        restore(records, real, self._run, now_ms, self._ahead_ms or 0, self._watch(admission, now_ms))

    def _connection(self, event: RecordedEvent, now_ms: int, admission: Admission) -> None:
        """Of connections that are summed up nobody knows which they were."""
        if event["phase"] == "close" and event["count"] == 1 and event["connection_id"] is not None:
            admission.connection_closed(event["connection_id"], now_ms)
            self._channels.pop(event["connection_id"], None)

    def _channel(self, event: RecordedEvent) -> _Channel:
        connection_id, user = event["connection_id"], event["user"]
        channel = self._channels.get(connection_id)
        if channel is None:
            client = Client(user, event["client_id"], event["address"], connection_id)
            channel = self._channels[connection_id] = _Channel(client)
        channel.client.identify(user)
        channel.client.client_id = event["client_id"]
        return channel

    # ---- arrivals --------------------------------------------------------------------------------------

    def _arrival(
        self, event: RecordedEvent, now_ms: int, admission: Admission, real: ProducerIdQuota
    ) -> Decision | None:
        if self._is_restored:
            self._hear_others(event, now_ms)
        self._latest_ms = now_ms
        if now_ms - self._swept_ms >= SWEPT_EVERY_MS:
            self._swept_ms = now_ms
            admission.sweep(now_ms)
        channel = self._channel(event)
        if event["partition"] < 0:
            return _inherited(event, channel, admission, now_ms)
        batch = (
            event["producer_id"],
            event["epoch"],
            event["base_sequence"],
            event["topic"].encode(),
            event["partition"],
        )
        was_here = batch[0] in channel.ids
        channel.ids.add(batch[0])
        pass_in_silence(
            admission,
            real,
            channel.client,
            batch,
            was_here=was_here,
            transactional=event["transactional"],
            now_ms=now_ms,
        )
        verdict = _judged(admission, channel, batch, transactional=event["transactional"], now_ms=now_ms)
        if isinstance(verdict, Refuse) and (verdict.rearms_mute or now_ms >= channel.muted_until_ms):
            channel.muted_until_ms = max(channel.muted_until_ms, now_ms + verdict.throttle_time_ms)
        decisions = verdict.decisions if isinstance(verdict, (Forward, Refuse)) else ()
        return decisions[0] if decisions else None

    def _hear_others(self, arrival: RecordedEvent, now_ms: int) -> None:
        """What this gateway had heard of others by now, at the times that its next arrival tells."""
        assert self._real is not None
        assert self._admission is not None
        heard: list[tuple[int, Record]] = []
        for number, end in enumerate(arrival["applied_offsets"]):
            pieces = [piece for piece in pieces_of(arrival) if piece["partition"] == number]
            for record in self._topic.between(number, self._applied.get(number, 0), end):
                at_ms = self._heard_ms(record, pieces, arrival["decision_time_ms"])
                if at_ms > now_ms:
                    break
                heard.append((at_ms, record))
                self._applied[number] = record.offset + 1
        for at_ms, record in sorted(heard, key=lambda one: one[0]):
            follow(record, self._real, self._run, at_ms, self._watch(self._admission, at_ms))

    def _heard_ms(self, record: Record, pieces: list[RecordedEvent], arrival_ms: int) -> int:
        """Of what is not told (by an older gateway, or behind 64 pieces): by the clocks, between two arrivals."""
        for piece in pieces:
            if piece["first_offset"] <= record.offset < piece["next_offset"]:
                return int(piece["at_ms"])
        told_ms = (self._ahead_ms or 0) + (record.event["append_time_ms"] or 0)
        return min(arrival_ms, max(self._latest_ms, told_ms))

    @staticmethod
    def _watch(admission: Admission, now_ms: int) -> Watch:
        def watch(user: User, producer_id: int) -> None:
            admission.sticky.watch_refused_elsewhere(user, producer_id, now_ms)

        return watch


def _is_caught_up(event: RecordedEvent) -> bool:
    return bool(event["type"] == "lifecycle" and event["phase"] == "caught_up")


def _judged(
    admission: Admission, channel: _Channel, batch: ProducerBatch, *, transactional: bool, now_ms: int
) -> Verdict:
    """Behind a mute only what is refused anyway is answered; all else waits for its end, and is judged then."""
    if now_ms < channel.muted_until_ms:
        refused = admission.judge_while_muted(
            channel.client, [batch], transactional=transactional, now_ms=now_ms
        )
        if refused is not None:
            return refused
    return admission.judge(channel.client, [batch], transactional=transactional, now_ms=now_ms)


def _inherited(event: RecordedEvent, channel: _Channel, admission: Admission, now_ms: int) -> Decision | None:
    """EndTxn handed out a new id; which one it follows stands in the event before."""
    producer_id, user = event["producer_id"], channel.client.user
    predecessor = channel.predecessors.get(producer_id)
    if predecessor is None or not admission.inherits(user, predecessor, producer_id, now_ms):
        return None
    return Decision(user, producer_id, event["epoch"], True, b"", -1, -1, 0, True, Reason.INHERITED)
