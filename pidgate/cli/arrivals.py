"""The new producer ids of one user, collected from the recorded decisions of all gateways. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pidgate.events.definitions import ConfigEvent, DecisionEvent
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.settings import Mode, ProducerIdSettings
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome, QuotaReplay
from pidgate.who.tally import ADMITTED_AS_NEW

_TYPE_WITHIN_BYTES: Final = 48


@dataclass(frozen=True, slots=True)
class NewId:
    """A producer id admitted as a new one."""

    at_ms: int
    producer_id: int
    client_id: str
    address: str
    transactional: bool


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance in a decision: `units`, with `token_units` to a token, at a wall clock time."""

    at_ms: int
    units: int
    token_units: int


def in_json(user: str) -> tuple[bytes, ...]:
    """Return a name as events have it. Gateways write ASCII; unescaped letters can be read too."""
    return json.dumps(user).encode(), json.dumps(user, ensure_ascii=False).encode("utf-8", "replace")


def may_be_of(record: EventRecord, event_type: str, names: tuple[bytes, ...] = (b"",)) -> bool:
    """Return whether a record may hold an event of this type with one of these names.

    To parse an event takes a hundred times as long.
    """
    is_of_type = b'"type":"%b"' % event_type.encode() in record.value[:_TYPE_WITHIN_BYTES]
    return is_of_type and any(name in record.value for name in names)


class History:
    """The new ids and refusals of one user, from records of any partition in any order.

    `user` is the name in events. `unreadable` counts unreadable events.
    """

    def __init__(self, user: str, from_ms: int) -> None:
        self._user = user
        self._in_json = in_json(user)
        self._from_ms = from_ms
        self._ids: list[NewId] = []
        self.first: Balance | None = None
        """The first balance in the events."""
        self.config: ConfigEvent | None = None
        """The newest config event, with the quotas in force now."""
        self.refused = 0
        """Refusals of the user, which was enforced at that time."""
        self.gateways: set[str] = set()
        self.unreadable = 0

    def add_records(self, records: Iterable[EventRecord]) -> None:
        """Add records of the topic."""
        for record in records:
            if not (may_be_of(record, "decision", self._in_json) or may_be_of(record, "config")):
                continue
            try:
                event = from_json(record.value)
            except EventUnreadable:
                self.unreadable += 1
                continue
            if isinstance(event, ConfigEvent):
                if self.config is None or event.wall_time_ms >= self.config.wall_time_ms:
                    self.config = event
            elif (
                isinstance(event, DecisionEvent)
                and event.user == self._user
                # Reading begins slightly before the period.
                and event.wall_time_ms >= self._from_ms
            ):
                self._add_decision(event)

    def _add_decision(self, event: DecisionEvent) -> None:
        self.gateways.add(event.gateway_id)
        if event.decision != "admit":
            self.refused += event.decision == "refuse"
            return
        if event.reason not in ADMITTED_AS_NEW:
            return
        at_ms = event.wall_time_ms
        self._ids.append(NewId(at_ms, event.producer_id, event.client_id, event.address, event.transactional))
        if event.tokens_before is None or event.token_units is None:
            return
        if self.first is None or at_ms < self.first.at_ms:
            self.first = Balance(at_ms, event.tokens_before, event.token_units)

    def new_ids(self, remember_ms: int) -> list[NewId]:
        """Return the new ids in order of time. An id admitted by two gateways at the same time counts once."""
        seen: dict[int, int] = {}
        found = []
        for new in sorted(self._ids, key=lambda new: new.at_ms):
            before_ms = seen.get(new.producer_id)
            seen[new.producer_id] = new.at_ms
            if before_ms is None or new.at_ms - before_ms >= remember_ms:
                found.append(new)
        return found


def outcomes(
    ids: Sequence[NewId], rate_milli: int | None, settings: ProducerIdSettings, balance: Balance | None
) -> list[Outcome]:
    """Replay ids in order of time, and return the outcome of each.

    `rate_milli` None: no limit. `balance`: at the beginning, None: full.
    """
    found = [Outcome() for _ in ids]
    quota = QuotaReplay(rate_milli, settings, ids[0].at_ms) if rate_milli and ids else None
    if quota is not None and balance is not None and balance.at_ms <= ids[0].at_ms:
        quota.bucket.restore(balance.units, balance.token_units, balance.at_ms)
    for new, outcome in zip(ids, found, strict=True):
        is_refusable = not new.transactional or settings.transactional is Mode.ENFORCE
        if quota is not None and is_refusable:
            quota.add_arrival(new.at_ms, outcome)
        elif quota is not None:
            quota.add_unrefused(new.at_ms, outcome)
        elif rate_milli == 0 and is_refusable:
            outcome.add(Outcome(refused=1, gave_up=1, longest_wait_ms=GIVES_UP_AFTER_MS))
        else:
            outcome.admitted = 1
    if quota is not None:
        quota.finish()
    return found
