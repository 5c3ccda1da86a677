"""Applies events to the quota's state: restores it from their history, then follows other gateways. PURE.

Decisions change the state; lifecycle and config events go to a callback. All other events are skipped after
their first bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pidgate.events.definitions import ConfigEvent, Event, LifecycleEvent, TransactionalIdEvent
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.gateway.state.decision_scan import Scanned, scan, type_of
from pidgate.gateway.state.history import History
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.decisions import Reason
from pidgate.quota.entities import User, table_key
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import Restorer
from pidgate.quota.sticky import WATCH_MS

_CHARGED: Final = frozenset({Reason.FIRST_SEEN, Reason.QUEUE})
ENVELOPE_BYTES: Final = 1_024
"""An event names its incarnation within this many bytes, unless an earlier name is very long."""
_READ_WHOLE: Final = frozenset({LifecycleEvent.type, ConfigEvent.type, TransactionalIdEvent.type})
"""Parsed whole; decisions are scanned instead."""
_OF_A_STATE: Final = frozenset(
    {Reason.FIRST_SEEN, Reason.QUEUE, Reason.REFRESH, Reason.DEADLINE, Reason.BLOCKED}
)
"""Reasons decided with a state. An id that passed without one, here or at gateways that start with this one, does not
prove a history."""

_REASONS: Final = {reason.value: reason for reason in Reason}

Watch = Callable[[User, int, int], None]
"""(user, producer id, now_ms): another gateway has refused this id."""
OnGateway = Callable[[LifecycleEvent | ConfigEvent, int], None]
"""(the event, its time on the clock of now_ms, at most now)."""


@dataclass(slots=True)
class _Balance:
    """A user's newest balance, with its event."""

    incarnation: bytes
    seq: int
    units: int
    token_units: int
    at_ms: int


class EventApplier:
    """`run`: this gateway's incarnation; its own events are skipped.

    `user_of`: the user of a name in an event (events.UserNames, where users are redacted). Events older than
    `remember_ms` are no history. `counts_charges`: there is a bound for the whole cluster, so every charge of the
    history counts. `on_mistake` is called with any exception of an event other than EventUnreadable; without it the
    exception is raised.
    """

    def __init__(
        self,
        run: str,
        *,
        remember_ms: int = 1 << 62,
        counts_charges: bool = False,
        user_of: Callable[[str], User] | None = None,
        on_gateway: OnGateway | None = None,
        on_mistake: Callable[[Exception], None] | None = None,
    ) -> None:
        self._run = run.encode()
        self._mark = f'"incarnation":{json.dumps(run)},'.encode()
        """Part of the envelope of this gateway's own events. Inside a text its quotes would be escaped."""
        self._user_of = user_of or _same_name
        self._on_gateway = on_gateway
        self._on_mistake = on_mistake
        self._balances: dict[User, _Balance] = {}
        self._charged_ms: list[int] | None = [] if counts_charges else None
        self.decisions = 0
        """Decisions applied, restored and followed."""
        self.saved_until: tuple[bytes, int] = (b"", 0)
        """Incarnation and seq of the latest event that the imported snapshot contains. Its events up to that one say
        nothing about balances, even if the topic took them later, as after a cut."""
        self.history = History(remember_ms)
        """Earlier states."""
        self.unreadable = 0
        self.last_unreadable = ""

    # A history

    def restore(
        self,
        records: Iterable[EventRecord],
        state: Restorer,
        now_ms: int,
        wall_ms: int,
        watch: Watch | None = None,
    ) -> None:
        """Apply a piece of the topic's history.

        `wall_ms` is the same moment as `now_ms`. Balances wait for `finish_restore`. `watch` is called with
        recently refused ids.
        """
        restore_id, user_of, balances = state.restore_id, self._user_of, self._balances
        charged_ms = self._charged_ms
        run, (saved_by, saved_seq) = self._run, self.saved_until
        decided, oldest_ms = self.history.decided, now_ms - self.history.remember_ms
        for record in records:
            try:
                at_ms = min(now_ms, now_ms - wall_ms + record.append_ms)
                decision = scan(record.value)
                if decision is None:
                    self._restore_other(record.value, state, at_ms, now_ms)
                    continue
                incarnation, seq, name, client_id, producer_id, transactional, admitted = decision[:7]
                reason, units, token_units = decision[7:]
                if incarnation == run:
                    # Already noted while the state is being restored, and handed over later.
                    continue
                if reason in _OF_A_STATE and at_ms > oldest_ms:
                    decided[incarnation] = at_ms
                user = user_of(name)
                account = state.account(user, client_id)
                self.decisions += 1
                if admitted and reason in (Reason.GRACE, Reason.RESTORING):
                    state.restore_grace(account, producer_id, at_ms, now_ms, transactional=transactional)
                elif admitted:
                    unseen = restore_id(account, producer_id, at_ms, now_ms, transactional=transactional)
                    # Two gateways may have admitted it at the same time.
                    if unseen and charged_ms is not None and reason in _CHARGED:
                        charged_ms.append(at_ms)
                elif watch is not None and now_ms - at_ms < WATCH_MS:
                    watch(user, producer_id, now_ms)
                if units is None or token_units is None or (incarnation == saved_by and seq <= saved_seq):
                    continue
                account = table_key(account, balances)
                known = balances.get(account)
                if known is None:
                    balances[account] = _Balance(incarnation, seq, units, token_units, at_ms)
                # A duplicate of an event is older than its position.
                elif at_ms >= known.at_ms and (seq > known.seq or incarnation != known.incarnation):
                    known.incarnation, known.seq, known.at_ms = incarnation, seq, at_ms
                    known.units, known.token_units = units, token_units
            except Exception as error:  # noqa: BLE001 - no one event ends the reading of all others
                self._skip(error)

    def finish_restore(self, state: Restorer) -> None:
        """Restore each user's newest balance, after the whole history. Later events go to `follow`."""
        for user, balance in self._balances.items():
            state.restore_tokens(user, balance.units, balance.token_units, balance.at_ms)
        self._balances.clear()
        if self._charged_ms:
            state.restore_cluster_charges(self._charged_ms)
            self._charged_ms.clear()

    # Following

    def follow(
        self, records: Iterable[EventRecord], state: ProducerIdQuota, watch: Watch, now_ms: int
    ) -> None:
        """Apply current events of other gateways; skip this gateway's own."""
        for record in records:
            try:
                if record.value.find(self._mark, 0, ENVELOPE_BYTES) >= 0:
                    continue
                decision = scan(record.value)
                if decision is None:
                    event = self._read_whole(record.value)
                    if event is not None:
                        self._take(event, state.restorer, now_ms, now_ms)
                elif decision[0] != self._run:
                    self._follow(decision, state, watch, now_ms)
            except Exception as error:  # noqa: BLE001 - no one event ends the following of all others
                self._skip(error)

    def _follow(self, decision: Scanned, state: ProducerIdQuota, watch: Watch, now_ms: int) -> None:
        self.decisions += 1
        _, _, name, client_id, producer_id, transactional, admitted, reason, _, _ = decision
        if admitted:
            account = state.table.account(self._user_of(name), client_id)
            state.admitted_elsewhere(account, producer_id, now_ms, reason, transactional=transactional)
        else:
            watch(self._user_of(name), producer_id, now_ms)

    def _is_own(self, event: Event) -> bool:
        return event.incarnation.encode() == self._run

    # Transactional ids, gateways

    def _read_whole(self, value: bytes) -> Event | None:
        """Return an event other than a decision; None if it is not needed here. Raises EventUnreadable."""
        return from_json(value) if type_of(value) in _READ_WHOLE else None

    def _restore_other(self, value: bytes, state: Restorer, at_ms: int, now_ms: int) -> None:
        """Apply an event other than a decision."""
        event = self._read_whole(value)
        if event is None:
            return
        if isinstance(event, LifecycleEvent) and not self._is_own(event):
            self.history.lifecycle(event, at_ms, now_ms)
        self._take(event, state, at_ms, now_ms)

    def _take(self, event: Event, state: Restorer, at_ms: int, now_ms: int) -> None:
        if self._is_own(event):
            return  # noted while the state is being restored, and handed over
        if isinstance(event, TransactionalIdEvent):
            _restore_transactional_id(event, self._user_of(event.user), state, at_ms, now_ms)
        elif isinstance(event, (LifecycleEvent, ConfigEvent)) and self._on_gateway is not None:
            self._on_gateway(event, at_ms)

    def _skip(self, error: Exception) -> None:
        """Count a skipped event.

        Raises the error if it is a defect of the gateway and no `on_mistake` is set.
        """
        if not isinstance(error, EventUnreadable):
            if self._on_mistake is None:
                raise error
            self._on_mistake(error)
        self.unreadable += 1
        self.last_unreadable = str(error)


def _same_name(name: str) -> User:
    return name


def _restore_transactional_id(
    event: TransactionalIdEvent, user: User, state: Restorer, at_ms: int, now_ms: int
) -> None:
    hashed = hash_in(event)
    if hashed is not None:
        reason = _REASONS.get(event.reason, Reason.REFRESH)
        state.restore_transactional_id(user, hashed, at_ms, now_ms, reason)


def hash_in(event: TransactionalIdEvent) -> int | None:
    """Return the hash of a transactional id. None for the form of a newer version: the id counts as new then."""
    _, _, digits = event.transactional_id_hash.partition(":")
    try:
        hashed = int(digits, 16)
    except ValueError:
        return None
    return hashed if 0 <= hashed < 1 << 64 else None
