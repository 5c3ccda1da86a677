"""Clients that wait now: why, since when, until when, and what ends the wait.

A row comes from a connection that is muted, delayed or not read, or from an id in its user's line. An id in line that
has a muted connection is one row. Waits on a peer (a broker that is slow, an answer whose size is not known yet) are
listed after MOMENT_MS: they begin and end all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.present.wait_words import Named, lifts, says
from pidgate.gateway.proxy.reading import Pause
from pidgate.gateway.proxy.waits import BY_ID_QUOTA, OF_BOUND, Why
from pidgate.quota.byte_quota import Kind
from pidgate.quota.counters import Refusal
from pidgate.quota.decisions import KEEPS_ORDER, NO_PRODUCER_ID
from pidgate.quota.entities import User, owner_of, shown
from pidgate.quota.retry_queue import Waiting
from pidgate.quota.users import LiveUser, UserTable

if TYPE_CHECKING:
    from pidgate.gateway.proxy.connection import Connection, Shared

ROWS_PER_TURN: Final = 200
"""Connections or ids in one turn of the event loop: less than 1 ms."""
MOMENT_MS: Final = 1_000

_OF_IDS: Final = BY_ID_QUOTA | {Why.UNDECIDED}
"""Waits with a refused batch: its client gives up some time."""
_AT_ONCE: Final = frozenset((*_OF_IDS, Why.MEMORY, Why.NOT_READING, Why.LOGIN))
_PAUSES: Final = (
    (Pause.BUDGET, Why.MEMORY),
    (Pause.NOT_READING, Why.NOT_READING),
    (Pause.MANY_IN_FLIGHT, Why.IN_FLIGHT),
    (Pause.CONNECTING, Why.CONNECTING),
    (Pause.PEER_BUSY, Why.BROKER_BUSY),
    (Pause.TURN, Why.TURN),
)


@dataclass(frozen=True, slots=True)
class WaitRow:
    """One client that waits.

    library           name and version, from ApiVersions
    says, lifts       why it waits in a sentence; the commands that end it, best first
    since_wall_ms     begin of the wait; `until_wall_ms`: end of the present throttle. None: not known
    gives_up_wall_ms  when its client drops the records, by its library's defaults. None: not known, or it loses none
    place, attempts   in its user's line, from 0; how often its id was refused
    connection_id     None: its client is not connected now
    """

    user: User
    name: str
    client_id: str
    address: str
    library: str
    why: Why
    says: str
    lifts: tuple[str, ...]
    since_wall_ms: int
    until_wall_ms: int | None
    gives_up_wall_ms: int | None = None
    producer_id: int | None = None
    place: int | None = None
    attempts: int | None = None
    connection_id: int | None = None
    node_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A connection that waits; times are monotonic."""

    why: Why
    since_ms: int
    until_ms: int | None
    producer_id: int = NO_PRODUCER_ID
    place: int | None = None


def wait_of(connection: Connection, now_ms: int) -> _Found | None:
    """Return why a connection waits now; None: it does not."""
    context, reasons = connection.session.context, connection.socket.gate.reasons
    wait = context.wait
    if wait is not None and (reasons & Pause.TOO_FAST or now_ms < context.muted_until_ms):
        return _Found(wait.why, wait.since_ms, wait.until_ms, wait.producer_id)
    found = None
    if connection.session.held:
        found = _held(connection, now_ms)
    elif reasons:
        why = next((why for pause, why in _PAUSES if reasons & pause), None)
        since_ms = connection.socket.gate.paused_since_ms
        found = None if why is None or not since_ms else _Found(why, since_ms, None)
    is_moment = found is not None and found.why not in _AT_ONCE and found.place is None
    return None if is_moment and found is not None and now_ms - found.since_ms < MOMENT_MS else found


def _held(connection: Connection, now_ms: int) -> _Found:
    session = connection.session
    context, account = session.context, session.context.awaited_account
    if session.awaits_account and account is not None:
        why = Why.PRODUCED_BYTES if account.kind is Kind.PRODUCE else Why.FETCHED_BYTES
        waiting = list(account.waiting)
        number = connection.client.connection_id
        place = waiting.index(number) if number in waiting else 0
        return _Found(why, context.held_since_ms, now_ms + account.wait_ms(now_ms), place=place)
    login = context.login
    if session.awaits_alteration:
        return _Found(Why.QUOTA_CHANGE, context.held_since_ms, None)
    if login.sasl_in_flight or login.awaits_owner or login.awaits_broker or login.is_missing:
        return _Found(Why.LOGIN, context.held_since_ms, None)
    return _Found(Why.ANSWER if context.awaits_size else Why.TURN, context.held_since_ms, None)


class Waits:
    """Collects the rows, in turns with the traffic."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def rows(self, moment: Moment, only_user: User | None = None) -> list[WaitRow]:
        """Return all clients that wait, those that lose records first."""
        rows: list[WaitRow] = []
        of_ids: dict[tuple[User, int], int] = {}
        state = self._shared.admission.state
        if state.is_restored:
            for number, row in enumerate(self._in_line(state.table, moment, only_user), 1):
                of_ids[row.user, row.producer_id or 0] = len(rows)
                rows.append(row)
                if number % ROWS_PER_TURN == 0:
                    await asyncio.sleep(0)
        for number, connection in enumerate(list(self._shared.connections), 1):
            if number % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
            if only_user is not None and connection.client.user != only_user:
                continue
            found = wait_of(connection, moment.now_ms)
            if found is None:
                continue
            row = self._of_connection(connection, found, moment)
            at = of_ids.get((row.user, found.producer_id))
            if at is None:
                rows.append(row)
            else:
                rows[at] = replace(
                    rows[at],
                    library=row.library,
                    until_wall_ms=row.until_wall_ms,
                    connection_id=row.connection_id,
                    node_id=row.node_id,
                )
        return sorted(rows, key=_urgency)

    def _in_line(self, table: UserTable, moment: Moment, only_user: User | None) -> Iterator[WaitRow]:
        for account in table.users():
            live = table.kept_under(account)
            user = owner_of(account)[0]
            if live is None or not live.queue.waiting or only_user not in (None, user):
                continue
            for producer_id in list(live.queue.waiting):
                waiting = live.queue.waiting.get(producer_id)
                if waiting is not None and producer_id >= 0:
                    yield self._of_id(table, account, live, waiting, moment)

    def _of_id(
        self, table: UserTable, account: User, live: LiveUser, waiting: Waiting, moment: Moment
    ) -> WaitRow:
        user, client_id = owner_of(account)
        why = _why_in_line(live, client_id, table.refusals.of_id(user, waiting.producer_id))
        named = self._named(user, waiting.client_id, why, waiting.producer_id)
        gives_up_ms = waiting.gives_up_ms
        until_ms = waiting.told_until_ms
        return WaitRow(
            user=user,
            name=shown(user),
            client_id=waiting.client_id,
            address=waiting.address,
            library="",
            why=why,
            says=says(why, named),
            lifts=lifts(why, named),
            since_wall_ms=moment.on_the_wall(waiting.first_refused_ms),
            until_wall_ms=moment.on_the_wall(until_ms) if until_ms > moment.now_ms else None,
            gives_up_wall_ms=None if gives_up_ms is None else moment.on_the_wall(gives_up_ms),
            producer_id=waiting.producer_id,
            place=None if waiting.is_passed_over else live.queue.place_of(waiting.producer_id),
            attempts=waiting.attempts,
        )

    def _of_connection(self, connection: Connection, found: _Found, moment: Moment) -> WaitRow:
        client, why = connection.client, found.why
        user = "" if connection.awaits_login else client.user
        patience_ms = client.traits.patience_ms if why in _OF_IDS else None
        named = self._named(user, client.client_id, why, found.producer_id)
        until_ms = found.until_ms
        return WaitRow(
            user=user,
            name=shown(user) if user else "(not logged in)",
            client_id=client.client_id,
            address=client.address,
            library=" ".join(connection.session.context.software).strip(),
            why=why,
            says=says(why, named),
            lifts=lifts(why, named),
            since_wall_ms=moment.on_the_wall(found.since_ms),
            until_wall_ms=None if until_ms is None else moment.on_the_wall(until_ms),
            gives_up_wall_ms=None
            if patience_ms is None
            else moment.on_the_wall(found.since_ms + patience_ms),
            producer_id=None if found.producer_id < 0 else found.producer_id,
            place=found.place,
            connection_id=client.connection_id,
            node_id=connection.context.node_id,
        )

    def _named(self, user: User, client_id: str, why: Why, producer_id: int) -> Named:
        shared = self._shared
        return Named(
            user,
            client_id,
            producer_id,
            shared.admission.quotas,
            shared.connection_quotas.limits.per_user_per_s,
        )


def _why_in_line(live: LiveUser, client_id: str | None, refusal: Refusal | None) -> Why:
    if live.blocked_by is not None:
        return Why.BLOCKED
    if refusal is not None and refusal.reason in KEEPS_ORDER:
        return Why.ORDER
    if refusal is not None and (why := OF_BOUND.get(refusal.bound)) is not None:
        return why
    return Why.USER_RATE if client_id is None else Why.CLIENT_ID_RATE


def _urgency(row: WaitRow) -> tuple[bool, int, int]:
    """Order rows: the client that gives up next, then the longest wait."""
    return row.gives_up_wall_ms is None, row.gives_up_wall_ms or 0, row.since_wall_ms
