"""The events topic during a replay: which decisions lie where, what they turned out to be, and what they do to others.

Decisions are taken up as a gateway does it (its absorber): a history restores, what comes later is followed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pidgate.quota.decisions import Decision, Reason
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.sticky import WATCH_MS
from tests.support.replay.recorded import RecordedEvent, run_of

Watch = Callable[[User, int], None]

_CHARGED = frozenset({Reason.FIRST_SEEN, Reason.QUEUE})


@dataclass(slots=True)
class Record:
    """A decision event in the topic. `decision` is what it was recomputed to; None: not yet, or nothing was decided."""

    event: RecordedEvent
    is_done: bool = False
    decision: Decision | None = None
    token_units: int = 0

    @property
    def offset(self) -> int:
        return int(self.event["kafka_offset"])


class Topic:
    """All decisions of one cluster that were published, by partition and offset."""

    def __init__(self, events: Iterable[RecordedEvent]) -> None:
        self._partitions: dict[int, list[Record]] = {}
        self._records: dict[tuple[str, str, int], Record] = {}
        for event in events:
            if event["type"] != "decision":
                continue
            record = self._records[_key(event)] = Record(event)
            if event["kafka_offset"] is not None:
                self._partitions.setdefault(event["kafka_partition"], []).append(record)
        for records in self._partitions.values():
            records.sort(key=lambda record: record.offset)
        self._offsets = {number: [one.offset for one in found] for number, found in self._partitions.items()}
        self._done: dict[int, int] = dict.fromkeys(self._partitions, 0)

    def decided(self, event: RecordedEvent, decision: Decision | None, token_units: int) -> None:
        """What a decision event was recomputed to."""
        record = self._records[_key(event)]
        record.is_done, record.decision, record.token_units = True, decision, token_units

    def is_done_below(self, offsets: Mapping[int, int]) -> bool:
        """Whether everything below these offsets has been recomputed."""
        return all(self._is_done_below(number, offset) for number, offset in offsets.items())

    def _is_done_below(self, number: int, offset: int) -> bool:
        records, done = self._partitions.get(number, []), self._done.get(number, 0)
        while done < len(records) and records[done].is_done:
            done += 1
        if records:
            self._done[number] = done
        return done == len(records) or records[done].offset >= offset

    def between(self, number: int, first: int, end: int) -> Sequence[Record]:
        """Records of a partition from one offset up to, and not with, another."""
        offsets = self._offsets.get(number, [])
        return self._partitions.get(number, [])[bisect_left(offsets, first) : bisect_left(offsets, end)]

    def appended_until(self, wall_ms: int) -> dict[int, int]:
        """By partition: the offset behind the last record that the broker had taken by then."""
        found = {}
        for number, records in self._partitions.items():
            there = [one.offset for one in records if (one.event["append_time_ms"] or 0) <= wall_ms]
            found[number] = max(there, default=-1) + 1
        return found


def _key(event: RecordedEvent) -> tuple[str, str, int]:
    return event["gateway_id"], event["incarnation"], event["seq"]


def restore(
    records: Iterable[Record], state: ProducerIdQuota, run: str, now_ms: int, ahead_ms: int, watch: Watch
) -> None:
    """Take in a history, as a gateway that starts. `ahead_ms`: the monotonic clock minus the wall's."""
    newest: dict[User, tuple[int, Decision, int]] = {}
    charged_ms: list[int] = []
    for record in records:
        decision = record.decision
        if decision is None or run_of(record.event["incarnation"]) == run:
            continue  # ids that passed since this process began are noted in its state
        at_ms = min(now_ms, ahead_ms + record.event["append_time_ms"])
        user, producer_id = decision.user, decision.producer_id
        if not decision.admitted:
            if now_ms - at_ms < WATCH_MS:
                watch(user, producer_id)
        elif decision.reason is Reason.GRACE or (
            decision.reason is Reason.OBSERVE and decision.tokens_after is None
        ):
            state.restorer.restore_grace(
                user, producer_id, at_ms, now_ms, transactional=decision.transactional
            )
        else:
            unseen = state.restorer.restore_id(
                user, producer_id, at_ms, now_ms, transactional=decision.transactional
            )
            if unseen and decision.reason in _CHARGED:
                charged_ms.append(at_ms)
        if decision.tokens_after is not None and (user not in newest or at_ms >= newest[user][0]):
            newest[user] = at_ms, decision, record.token_units
    for user, (at_ms, decision, token_units) in newest.items():
        if decision.tokens_after is not None:
            state.restorer.restore_tokens(user, decision.tokens_after, token_units, at_ms)
    state.restorer.restore_cluster_charges(charged_ms)


def follow(record: Record, state: ProducerIdQuota, run: str, now_ms: int, watch: Watch) -> None:
    """Take in what another gateway has decided."""
    decision = record.decision
    if decision is None or run_of(record.event["incarnation"]) == run:
        return
    if decision.admitted:
        state.admitted_elsewhere(
            decision.user,
            decision.producer_id,
            now_ms,
            decision.reason,
            transactional=decision.transactional,
        )
    else:
        watch(decision.user, decision.producer_id)
