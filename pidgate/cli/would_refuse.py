"""The refusals that enforcing a user's quota would have caused, from the decisions recorded while observing. PURE.

The bucket is filled and spent again as the new ids came, with the quota in force now: an id without a token waits in
line, first come first served. Enforcing does that with clients that try until they are admitted; one that gives up
leaves its token to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pidgate.events.definitions import ConfigEvent, DecisionEvent
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.settings import Mode, ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket
from pidgate.who.tally import ADMITTED_AS_NEW

HOUR_MS: Final = 3_600_000
JAVA_GIVES_UP_MS: Final = 120_000
"""delivery.timeout.ms of Java and kafka-python."""
_TYPES: Final = (b'"type":"decision"', b'"type":"config"')
_TYPE_WITHIN_BYTES: Final = 48


@dataclass(frozen=True, slots=True)
class NewId:
    """A producer id that was let in as a new one. `flagged`: its event says that enforcing would have refused it."""

    at_ms: int
    producer_id: int
    client_id: str
    address: str
    transactional: bool
    flagged: bool


@dataclass(slots=True)
class Bucket:
    """The balance in a decision: `units` of which `token_units` make one token, at a wall clock time."""

    at_ms: int
    units: int
    token_units: int


class History:
    """Collection of the records of one user, of any partition in any order.

    `user` is its name in events. `unreadable` counts events that could not be read.
    """

    def __init__(self, user: str, from_ms: int) -> None:
        self._user = user
        # Gateways write ASCII; letters written as they are can be read, too.
        self._in_json = (
            json.dumps(user).encode(),
            json.dumps(user, ensure_ascii=False).encode("utf-8", "replace"),
        )
        self._from_ms = from_ms
        self._ids: list[NewId] = []
        self.first: Bucket | None = None
        """The first balance in the events."""
        self.config: ConfigEvent | None = None
        """The newest: the quotas in force now."""
        self.refused = 0
        """Refusals of the user: it was enforced already."""
        self.gateways: set[str] = set()
        self.unreadable = 0

    def take(self, records: Iterable[EventRecord]) -> None:
        """Take records of the topic."""
        for record in records:
            head = record.value[:_TYPE_WITHIN_BYTES]
            is_decision = _TYPES[0] in head
            if not is_decision and _TYPES[1] not in head:
                continue
            # Parsing an event takes a hundred times as long as finding that it is another user's.
            if is_decision and not any(name in record.value for name in self._in_json):
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
                # Reading begins a little before the span.
                and event.wall_time_ms >= self._from_ms
            ):
                self._decision(event)

    def _decision(self, event: DecisionEvent) -> None:
        self.gateways.add(event.gateway_id)
        if event.decision != "admit":
            self.refused += 1
            return
        if event.reason not in ADMITTED_AS_NEW:
            return
        at_ms = event.wall_time_ms
        self._ids.append(
            NewId(
                at_ms,
                event.producer_id,
                event.client_id,
                event.address,
                event.transactional,
                event.would_refuse,
            )
        )
        if event.tokens_before is None or event.token_units is None:
            return
        if self.first is None or at_ms < self.first.at_ms:
            self.first = Bucket(at_ms, event.tokens_before, event.token_units)

    def new_ids(self, remember_ms: int) -> list[NewId]:
        """Return the new ids in the order of time; one that two gateways let in at once counts once."""
        seen: dict[int, int] = {}
        found = []
        for new in sorted(self._ids, key=lambda new: new.at_ms):
            before_ms = seen.get(new.producer_id)
            seen[new.producer_id] = new.at_ms
            if before_ms is None or new.at_ms - before_ms >= remember_ms:
                found.append(new)
        return found


@dataclass(slots=True)
class Count:
    """Counts of one hour, or of one place. `longest_ms` None: for ever."""

    new_ids: int = 0
    refused: int = 0
    longest_ms: int | None = 0

    def add(self, wait_ms: int | None) -> None:
        """Count an id that would have waited so long; None: for ever."""
        self.new_ids += 1
        if wait_ms == 0:
            return
        self.refused += 1
        if wait_ms is None or self.longest_ms is None:
            self.longest_ms = None
        else:
            self.longest_ms = max(self.longest_ms, wait_ms)


@dataclass(slots=True)
class WouldRefuse:
    """The outcome. `gave_up`: ids that would have waited longer than Java's producers do. `flagged`: ids that the
    gateways themselves flagged, with the quotas of the time.
    """

    all: Count = field(default_factory=Count)
    gave_up: int = 0
    flagged: int = 0
    by_hour: dict[int, Count] = field(default_factory=dict)
    by_place: dict[tuple[str, str], Count] = field(default_factory=dict)
    """By client id and address."""


def would_refuse(
    ids: Sequence[NewId], rate_milli: int | None, settings: ProducerIdSettings, first: Bucket | None
) -> WouldRefuse:
    """Compute the outcome. `rate_milli` None: no limit; `first`: the balance at the beginning, None: full."""
    outcome = WouldRefuse()
    for new, wait_ms in zip(ids, waits_ms(ids, rate_milli, settings, first), strict=True):
        outcome.all.add(wait_ms)
        outcome.by_hour.setdefault(new.at_ms // HOUR_MS * HOUR_MS, Count()).add(wait_ms)
        outcome.by_place.setdefault((new.client_id, new.address), Count()).add(wait_ms)
        outcome.gave_up += wait_ms is None or wait_ms > JAVA_GIVES_UP_MS
        outcome.flagged += new.flagged
    return outcome


def waits_ms(
    ids: Sequence[NewId], rate_milli: int | None, settings: ProducerIdSettings, first: Bucket | None
) -> list[int | None]:
    """Return the wait of each id, in order; None: for ever."""
    if not ids or rate_milli is None:
        return [0] * len(ids)
    never_refused = settings.transactional is Mode.OBSERVE
    if rate_milli == 0:
        return [0 if new.transactional and never_refused else None for new in ids]
    bucket = TokenBucket(rate_milli, settings.window_ms, settings.burst, ids[0].at_ms)
    if first is not None:
        bucket.restore(first.units, first.token_units, first.at_ms)
    waits: list[int | None] = []
    next_ms = 0
    for new in ids:
        if new.transactional and never_refused:
            bucket.charge_floored(max(new.at_ms, next_ms))
            waits.append(0)
            continue
        turn_ms = max(new.at_ms, next_ms)
        next_ms = turn_ms + bucket.wait_ms(0, turn_ms)
        bucket.charge(next_ms)
        waits.append(next_ms - new.at_ms)
    return waits
