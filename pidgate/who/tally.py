"""Events -> bounded sums: every event is processed once and dropped. Pure.

Memory is proportional to users, places and names, each of them bounded, plus one byte for each producer id.
Items without room are counted and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary
from zlib import crc32

from pidgate.events.definitions import (
    ConfigEvent,
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    LifecycleEvent,
    ProduceErrorEvent,
)
from pidgate.findings.rules import SAME_BREATH_MS
from pidgate.who.bounded import Sample
from pidgate.who.id_marks import IdMarks, Mark
from pidgate.who.sequences import Sequences
from pidgate.who.user_tally import (
    CONNECTIONS_KEPT,
    IDS_KEPT,
    MOST_PLACES,
    PLACE_IDS_KEPT,
    ConnectionTally,
    IdTally,
    PlaceTally,
    UserTally,
    software_of,
)

MOST_USERS: Final = 10_000
MOST_KEPT: Final = 200_000
"""Ids, and connections, of all users together. Above it, each user keeps half as many."""
MOST_KEPT_IN_PLACES: Final = 1_000_000
"""Ids of all places together. Above it, each place keeps LEAST_KEPT."""
LEAST_KEPT: Final = 16
MOST_PLACES_IN_ALL: Final = 30_000
FEW_PLACES: Final = 16
"""Places that every user may have, however many there are in total."""
MOST_GATEWAYS: Final = 1_000
MOST_CLOSES: Final = 50_000
UNUSED_AFTER_MS: Final = 60_000
"""An id allocated less than this before the end may still be used."""

ADMITTED_AS_NEW: Final = frozenset(
    {"first_seen", "queue", "observe", "exempt", "restoring", "grace", "fail_open"}
)
"""Without refresh and inherited: those ids are known."""
REFUSED_AS_NEW: Final = frozenset({"first_seen", "queue", "deadline", "blocked"})
"""Without sticky and established: those refusals keep the order of batches and are unrelated to the quota."""

_SEEN: Final = Mark.NEW | Mark.ALLOCATED | Mark.USED


class Tally:
    """State of a window: processes its events and holds the result."""

    def __init__(self, only_user: str | None = None, ids_kept: int = IDS_KEPT) -> None:
        self.users: dict[str, UserTally] = {}
        self.marks = IdMarks()
        self.sequences = Sequences()
        self.events = self.duplicates = self.users_beyond = 0
        self.summed_allocations = 0
        self.first_allocation_ms: int | None = None
        self.cluster = ""
        self.gateways: dict[str, None] = {}
        self.heard_ms: dict[str, int] = {}
        """The newest event of each gateway."""
        self.stopped_ms: dict[str, int] = {}
        self.configs: dict[str, ConfigEvent] = {}
        """The newest of each gateway."""
        self._only_user = only_user
        self._ids = _Share(ids_kept)
        self._connections = _Share(CONNECTIONS_KEPT)
        self._places = self._in_places = 0
        self._incarnations: dict[str, int] = {}
        self._open: WeakValueDictionary[int, ConnectionTally] = WeakValueDictionary()
        """Connections of all ids that are kept."""
        self._closes: dict[int, tuple[int, bool]] = {}
        """Of connections that no id is known of, the newest last."""
        self._take: Mapping[type[Event], Callable[[Any], None]] = {
            DecisionEvent: self._decision,
            IdUsageEvent: self._usage,
            InitProducerIdEvent: self._init,
            LifecycleEvent: self._lifecycle,
            ProduceErrorEvent: self._add_error,
            ConfigEvent: self._config,
        }

    def tick(self, gateway_id: str, incarnation: str, seq: int, *, judged: bool = True) -> bool:
        """Record an event's number; return False for a duplicate. `judged`: see sequences.py."""
        return self.sequences.is_new(gateway_id, incarnation, seq, judged=judged)

    def add(self, event: Event, *, judged: bool = True) -> None:
        """Process one event of the window, unless it is a duplicate."""
        if not self.tick(event.gateway_id, event.incarnation, event.seq, judged=judged):
            self.duplicates += 1
            return
        self.events += 1
        if event.gateway_id not in self.gateways and len(self.gateways) < MOST_GATEWAYS:
            self.gateways[event.gateway_id] = None
        if event.gateway_id in self.gateways and event.wall_time_ms >= self.heard_ms.get(event.gateway_id, 0):
            self.heard_ms[event.gateway_id] = event.wall_time_ms
        self.cluster = self.cluster or event.cluster
        take = self._take.get(type(event))
        if take is not None:
            take(event)

    def count_unread(self, gateway_id: str, incarnation: str, seq: int, *, judged: bool = True) -> bool:
        """Count an event that was not parsed; return False for a duplicate."""
        is_new = self.tick(gateway_id, incarnation, seq, judged=judged)
        self.events += is_new
        self.duplicates += not is_new
        return is_new

    def count_connections(self, name: str, opened: int) -> None:
        """Count opened connections of a user; closed ones are below 0."""
        user = self._user(name)
        if user is not None:
            user.connections_open += opened

    def add_close(self, incarnation: str, connection_id: int, at_ms: int, *, was_cut: bool) -> None:
        """Note that a client closed or cut a connection."""
        key = self._key(incarnation, connection_id)
        if (connection := self._open.get(key)) is not None:
            connection.closed = at_ms, was_cut
            return
        # Its ids may still come: partitions are read at different speeds. Most connections bring none.
        if len(self._closes) >= MOST_CLOSES:
            del self._closes[next(iter(self._closes))]
        self._closes[key] = at_ms, was_cut

    def _decision(self, event: DecisionEvent) -> None:
        if event.decision == "hold":
            return  # the batch is judged, and counted, when its mute is over
        marks = Mark.USED
        if event.decision == "admit":
            if event.reason in ADMITTED_AS_NEW:
                marks |= Mark.NEW | Mark.ADMITTED | (event.would_refuse and Mark.WOULD_REFUSE)
        elif event.reason in REFUSED_AS_NEW:
            marks |= Mark.NEW | Mark.REFUSED
        marks |= event.transactional and Mark.TRANSACTIONAL
        marks |= event.epoch > 0 and Mark.BUMPED
        before = self.marks.mark(event.producer_id, marks)
        user = self._user(event.user)
        if user is None:
            return
        user.count(marks, before)
        place = self._place(user, event)
        detail = self._sight(user, place, event, event.producer_id, marks, before)
        if marks & ~before & Mark.NEW:
            place.new_ids += 1
            if (refused_id := self._replaced_by(place, event)) is not None:
                user.replaced.add(refused_id)
                user.admitted_after += event.decision == "admit"
            self._brought_by(user, place, detail, event)
        if detail is not None:
            detail.transactional |= event.transactional
            detail.name = event.transactional_id_hash or detail.name
        user.replaced.discard(event.producer_id)
        if event.decision == "refuse":
            until_ms = event.wall_time_ms + event.throttle_time_ms
            user.note_refusal(event.producer_id, until_ms)
            place.refused = event.producer_id, until_ms
        if detail is not None and marks & Mark.NEW:
            if detail.started_ms < 0:
                detail.started_ms = event.wall_time_ms
            detail.refused = not (marks | before) & Mark.ADMITTED

    def _replaced_by(self, place: PlaceTally, event: DecisionEvent) -> int | None:
        """Return the id that was refused there, never admitted, and ended in the same breath as this one began."""
        if place.refused is None or place.refused[0] == event.producer_id:
            return None
        refused_id, until_ms = place.refused
        in_one_breath = event.wall_time_ms <= until_ms + SAME_BREATH_MS
        return refused_id if in_one_breath and not self.marks.of(refused_id) & Mark.ADMITTED else None

    def _usage(self, event: IdUsageEvent) -> None:
        marks = Mark.USED | (event.epoch > 0 and Mark.BUMPED)
        before = self.marks.mark(event.producer_id, marks)
        user = self._user(event.user)
        if user is None:
            return
        user.count(marks, before)
        place = self._place(user, event)
        detail = self._sight(user, place, event, event.producer_id, marks, before)
        if detail is not None:
            detail.requests += event.requests
            detail.records += event.records
            detail.partitions = max(detail.partitions, event.partitions)
            detail.first_ms = min(detail.first_ms, event.first_ms)
            detail.last_ms = max(detail.last_ms, event.last_ms)

    def _init(self, event: InitProducerIdEvent) -> None:
        producer_id = event.answered_producer_id
        if event.error or producer_id < 0:
            return
        handed_out = event.answered_epoch == 0 and event.asked_producer_id != producer_id
        marks = Mark.TRANSACTIONAL if event.transactional else 0
        marks |= event.answered_epoch > 0 and Mark.BUMPED
        if handed_out:
            marks |= Mark.ALLOCATED
            self.summed_allocations += event.count - 1
            if self.first_allocation_ms is None or event.wall_time_ms < self.first_allocation_ms:
                self.first_allocation_ms = event.wall_time_ms
        before = self.marks.mark(producer_id, marks)
        user = self._user(event.user)
        if user is None:
            return
        user.count(marks, before)
        if handed_out:
            if not event.transactional:
                user.recent.append((event.wall_time_ms, producer_id))
            self._sight(user, self._place(user, event), event, producer_id, marks, before)

    def _add_error(self, event: ProduceErrorEvent) -> None:
        user = self.users.get(event.user)
        detail = None if user is None else self._known(user, self._place(user, event), event.producer_id)
        if detail is not None and event.wall_time_ms > detail.error_ms:
            detail.error_ms, detail.error_code = event.wall_time_ms, event.code

    def _lifecycle(self, event: LifecycleEvent) -> None:
        if event.phase == "stop" and event.gateway_id in self.gateways:
            stopped_ms = self.stopped_ms.get(event.gateway_id, 0)
            self.stopped_ms[event.gateway_id] = max(stopped_ms, event.wall_time_ms)

    def _config(self, event: ConfigEvent) -> None:
        known = self.configs.get(event.gateway_id)
        if known is None and len(self.configs) >= MOST_GATEWAYS:
            return
        if known is None or event.wall_time_ms >= known.wall_time_ms:
            self.configs[event.gateway_id] = event

    def _user(self, name: str) -> UserTally | None:
        user = self.users.get(name)
        if user is None:
            if self._only_user is not None and name != self._only_user:
                return None
            if len(self.users) >= MOST_USERS:
                self.users_beyond += 1
                return None
            user = self.users[name] = UserTally(name, self._ids.limit, self._connections.limit)
        return user

    def _sight(
        self, user: UserTally, place: PlaceTally, event: Event, producer_id: int, marks: int, before: int
    ) -> IdTally | None:
        """Record an occurrence of an id; return its tally if its place or the sample keeps one."""
        is_first = not before & _SEEN
        if is_first:
            user.client_ids.add(event.client_id)
            user.addresses.add(event.address)
            user.software.add(software_of(event))
            place.names.add(event.client_id)
        detail = self._known(user, place, producer_id)
        if detail is None:
            is_sampled = user.ids.takes(producer_id)
            if not is_first and not is_sampled:
                return None
            detail = IdTally(place, event.wall_time_ms)
            if is_first:
                most = PLACE_IDS_KEPT if self._in_places < MOST_KEPT_IN_PLACES else LEAST_KEPT
                self._in_places += place.keep(producer_id, detail, most)
            if is_sampled:
                user.ids.put(producer_id, detail)
                self._ids.added(lambda: (user.ids for user in self.users.values()))
        detail.used = detail.used or bool(marks & Mark.USED)
        return detail

    def _known(self, user: UserTally, place: PlaceTally, producer_id: int) -> IdTally | None:
        return place.ids.get(producer_id) or user.ids.get(producer_id)

    def _place(self, user: UserTally, event: Event) -> PlaceTally:
        before = len(user.places)
        place = user.place(event, MOST_PLACES if self._places < MOST_PLACES_IN_ALL else FEW_PLACES)
        self._places += len(user.places) - before
        return place

    def _brought_by(
        self, user: UserTally, place: PlaceTally, detail: IdTally | None, event: DecisionEvent
    ) -> None:
        if event.connection_id is None:
            return
        key = self._key(event.incarnation, event.connection_id)
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = ConnectionTally(place, closed=self._closes.pop(key, None))
            if user.connections.takes(key):
                user.connections.put(key, connection)
                self._connections.added(lambda: (user.connections for user in self.users.values()))
        connection.ids += 1
        if detail is not None:
            detail.connection = connection

    def _key(self, incarnation: str, connection_id: int) -> int:
        process = self._incarnations.get(incarnation)
        if process is None:
            if len(self._incarnations) >= MOST_GATEWAYS:
                self._incarnations.clear()
            process = self._incarnations[incarnation] = crc32(incarnation.encode())
        return process << 32 | connection_id


class _Share:
    """Limit per user, so that all users together keep no more than MOST_KEPT."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept = 0

    def added(self, samples: Callable[[], Iterable[Sample[Any]]]) -> None:
        """Count one more kept item."""
        self._kept += 1
        while self._kept > MOST_KEPT:
            self._kept = sum(map(len, samples()))
            if self._kept <= MOST_KEPT or self.limit <= LEAST_KEPT:
                break
            self.limit //= 2
            for sample in samples():
                sample.limit_to(self.limit)
