"""Quotas over Kafka's own API: AlterClientQuotas and DescribeClientQuotas. PURE.

An AlterClientQuotas without an operation on a key of KEYS is forwarded unchanged. Any other becomes a
QuotaExchange. Its owner repeats these steps until `is_over`, and then sends `answer()`:

    frame = exchange.next_frame()     not None: send it to the broker, call answered() with its answer
    exchange.changes                  not empty: with `only_check` ask QuotaStore.check for each of them, else make
                                      them with QuotaStore.change; report to changed() or not_made()

The order of steps prevents a partly applied request. First the broker validates every entity (validate_only)
without the gateway's operations: it checks entities, the other keys and the client's authorization. Then the
gateway's changes are checked. Then the broker applies the rest, and last the gateway's changes are made. A
failed entry is skipped in later steps. With the client's validate_only the exchange ends after the second
step.

Frames to the broker carry the client's correlation id and header. This module does not know sockets, tasks or
the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from pidgate.gateway.quotas.administration import Kept
from pidgate.protocol import client_quotas
from pidgate.protocol.client_quotas import (
    POLICY_VIOLATION,
    AlterRequest,
    Entity,
    Entry,
    Operation,
    Outcome,
    UserFilter,
)
from pidgate.protocol.errors import ErrorCode, FrameTooLarge
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.work import MOST_SEARCHED_BYTES, Walk
from pidgate.quota.changes import (
    BYTE_RATES,
    RATES,
    Action,
    Change,
    Setting,
    Target,
    rates_of,
    value_in_force,
)
from pidgate.quota.entities import User, is_unidentified, shown
from pidgate.quota.settings import NOT_SET, Quotas, UserQuota, rate_milli

KEYS: Final = {setting.value: setting for setting in RATES}
"""The gateway's own quota keys, with the same name in requests, answers, files and changes."""

BYTE_KEYS: Final = {setting.value: setting for setting in BYTE_RATES}
"""Keys that Kafka has, too. Where the gateway keeps them, it keeps those of a user or of the default user."""

MOST_RATE: Final = 1e12
"""More ids per window than a gateway can count; leaves room for exact arithmetic."""

CHANGES_AT_ONCE: Final = 100
"""Changes between two turns of the event loop. One takes about 50 microseconds, longer with a topic."""

Buffer = bytes | bytearray | memoryview

_OURS: Final = tuple(key.encode() for key in KEYS)
_OURS_AND_BYTES: Final = (*_OURS, *(key.encode() for key in BYTE_KEYS))
_MILLI: Final = 1000
_PASSED: Final = Outcome(ErrorCode.NONE, None)
_SILENT: Final = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's answer lacks this entity.")

_rate_milli = lru_cache(maxsize=64)(rate_milli)  # many quotas are set to the same value


class _Stage(Enum):
    VALIDATE = auto()
    CHECK = auto()
    FORWARD = auto()
    CHANGE = auto()
    OVER = auto()


@dataclass(slots=True)
class _Part:
    """One entry of the request with its outcome so far."""

    entry: Entry
    others: list[Operation]
    changes: tuple[Change, ...] = ()
    outcome: Outcome = _PASSED

    @property
    def is_alive(self) -> bool:
        return self.outcome.error_code == ErrorCode.NONE


class QuotaExchange:
    """One AlterClientQuotas with at least one of the gateway's own operations."""

    def __init__(self, request: AlterRequest, parts: list[_Part]) -> None:
        self._request = request
        self._parts = parts
        self._stage = _Stage.VALIDATE
        self._throttle_time_ms = 0
        self._frame: bytes | None = None
        self._asked: list[_Part] = []
        self._changing: list[tuple[_Part, Change]] = []
        self.changes: list[Change] = []
        """Changes to check or make now: at most CHANGES_AT_ONCE at a time."""
        self.only_check = True
        """`changes` are to be checked only."""
        self.kept: Kept | None = None
        """Where the changes are kept, once they are made."""
        self._enter()

    @classmethod
    def begin(
        cls, buf: Buffer, head: RequestHead, user: User, *, keeps_bytes: bool = False
    ) -> QuotaExchange | None:
        """Return the exchange for the user's request in `buf`. None: forward it unchanged.

        `keeps_bytes`: byte rates of users are the gateway's own.

        Raises KafkaProtocolError, or its subclass FrameTooLarge for a request above the size that is read.
        """
        if (size := head.end - head.start) > MOST_SEARCHED_BYTES:
            raise FrameTooLarge(f"an AlterClientQuotas of {size} bytes: set fewer quotas with one request")
        if not _mentions(buf, head.start, head.end, _OURS_AND_BYTES if keeps_bytes else _OURS):
            return None
        request = client_quotas.read_alter(buf, head)
        if not any(_own_operations(entry, keeps_bytes=keeps_bytes) for entry in request.entries):
            return None
        set_by = shown(user) if is_unidentified(user) else f"User:{user}"
        times = Counter(entry.entity for entry in request.entries)
        parts = [
            _part(entry, _own_operations(entry, keeps_bytes=keeps_bytes), times[entry.entity], set_by)
            for entry in request.entries
        ]
        return cls(request, parts)

    @property
    def is_over(self) -> bool:
        """Return whether only `answer()` is left to be sent."""
        return self._stage is _Stage.OVER

    def next_frame(self) -> bytes | None:
        """Return the framed request for the broker, once. None: there is none now."""
        frame, self._frame = self._frame, None
        return frame

    def answered(self, buf: Buffer, start: int, end: int) -> None:
        """Process the broker's answer to the last frame, without its size prefix.

        Raises KafkaProtocolError when it is malformed, RuntimeError when none is expected.
        """
        if not self._asked or self._frame is not None:
            raise RuntimeError("no answer is awaited")
        answer = client_quotas.read_alter_answer(buf, start, end, self._request.api_version)
        self._throttle_time_ms = max(self._throttle_time_ms, answer.throttle_time_ms)
        for part in self._asked:
            part.outcome = answer.outcomes.get(part.entry.entity, _SILENT)
        self._asked = []
        self._go_on()

    def changed(self, problems: Sequence[str | None], kept: Kept | None = None) -> None:
        """Process the outcome of each of `changes`, in order: None, or the reason for its rejection.

        A change kept in memory alone has not failed: it is in force.
        """
        for (part, _), problem in zip(self._changing[: len(self.changes)], problems, strict=True):
            if problem is not None:
                part.outcome = Outcome(POLICY_VIOLATION, problem)
        del self._changing[: len(self.changes)]
        self.kept = kept
        self._offer_changes()

    def not_made(self, why: str) -> None:
        """End the changes: they could not be made, or their outcome is unknown."""
        for part, _ in self._changing:
            part.outcome = Outcome(ErrorCode.REQUEST_TIMED_OUT, why)
        self._changing = []
        self._offer_changes()

    def answer(self) -> bytes:
        """Return the framed answer for the client: one outcome per entity, in the order of its request.

        Raises RuntimeError before `is_over`.
        """
        if not self.is_over:
            raise RuntimeError("the exchange is not over")
        outcomes: dict[Entity, tuple[Entry, Outcome]] = {}
        for part in self._parts:
            outcomes.setdefault(part.entry.entity, (part.entry, part.outcome))
        return client_quotas.alter_answer(self._request, self._throttle_time_ms, list(outcomes.values()))

    # ---- inside ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        following = {
            _Stage.VALIDATE: _Stage.CHECK,
            _Stage.CHECK: _Stage.OVER if self._request.validate_only else _Stage.FORWARD,
            _Stage.FORWARD: _Stage.CHANGE,
            _Stage.CHANGE: _Stage.OVER,
        }
        self._stage = following[self._stage]
        self._enter()

    def _enter(self) -> None:
        """Prepare the frame or the changes of this stage; skip a stage without any."""
        if self._stage is _Stage.VALIDATE:
            self._ask([part for part in self._parts if part.is_alive], validate_only=True)
        elif self._stage is _Stage.FORWARD:
            self._ask([part for part in self._parts if part.is_alive and part.others], validate_only=False)
        elif self._stage in (_Stage.CHECK, _Stage.CHANGE):
            self.only_check = self._stage is _Stage.CHECK
            self._changing = [
                (part, change) for part in self._parts if part.is_alive for change in part.changes
            ]
            self._offer_changes()
            return
        if not self.is_over and not self._asked:
            self._go_on()

    def _offer_changes(self) -> None:
        self.changes = [change for _, change in self._changing[:CHANGES_AT_ONCE]]
        if not self.changes:
            self._go_on()

    def _ask(self, parts: list[_Part], *, validate_only: bool) -> None:
        self._asked = parts
        if parts:
            entries = ((part.entry, part.others) for part in parts)
            self._frame = client_quotas.alter_request(self._request, entries, validate_only=validate_only)


def _mentions(buf: Buffer, start: int, end: int, keys: Sequence[bytes]) -> bool:
    if isinstance(buf, memoryview):
        buf, start, end = bytes(buf[start:end]), 0, end - start
    return any(buf.find(key, start, end) >= 0 for key in keys)


def _own_operations(entry: Entry, *, keeps_bytes: bool) -> list[Operation]:
    """Return the operations on keys of the gateway. Byte rates of client ids and addresses are the brokers'."""
    is_user = keeps_bytes and entry.components == 1 and entry.entity[0][0] == client_quotas.USER
    return [one for one in entry.operations if one.key in KEYS or (is_user and one.key in BYTE_KEYS)]


def _part(entry: Entry, ours: list[Operation], times: int, set_by: str) -> _Part:
    if times > 1:
        # Kafka answers with an error too, but still applies the first entry, which can hardly be intended.
        return _failed(entry, f"Ignoring duplicate entity {_shown(entry.entity)}")
    if not ours:
        return _Part(entry, entry.operations)
    key, given = Counter(operation.key for operation in ours).most_common(1)[0]
    if given > 1:
        return _failed(
            entry, f"Duplicate quota key {key} not updating quota for this entity {_shown(entry.entity)}"
        )
    if entry.components != 1 or entry.entity[0][0] != client_quotas.USER:
        return _failed(
            entry, f"{key} is set for a user or for the default user, not for {_shown(entry.entity)}"
        )
    user = entry.entity[0][1]
    if user == "":
        return _failed(entry, "Empty user not supported")
    for wanted in ours:
        # The negated form also rejects NaN.
        if not wanted.remove and not 0 < wanted.value <= MOST_RATE:
            return _failed(
                entry,
                f"{wanted.key} must be a number above 0 and at most {MOST_RATE:.0f}, not {wanted.value}",
            )
    # A byte rate that the gateway keeps or removes is removed at the brokers: there is one keeper.
    others = [
        client_quotas.removal(one) if one in ours else one
        for one in entry.operations
        if one not in ours or one.key in BYTE_KEYS
    ]
    return _Part(entry, others, tuple(_change(wanted, user, set_by) for wanted in ours))


def _change(wanted: Operation, user: User | None, set_by: str) -> Change:
    return Change(
        target=Target(Setting(wanted.key), user),
        action=Action.REMOVE if wanted.remove else Action.SET,
        value=None if wanted.remove else _rate_milli(wanted.value),
        set_by=set_by,
    )


def _failed(entry: Entry, problem: str) -> _Part:
    return _Part(entry, [], (), Outcome(ErrorCode.INVALID_REQUEST, problem))


def _shown(entity: Entity) -> str:
    return (
        ", ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in entity)
        or "nobody"
    )


# DescribeClientQuotas


def described(
    buf: Buffer, start: int, end: int, api_version: int, note: object, quotas: Quotas
) -> bytes | Walk | None:
    """Return the broker's framed answer plus the gateway's rates, in ids per window.

    None: forward it unchanged. Brokers may keep quotas of thousands of users, so the result may be a Walk
    that ends in one of these.

    Nothing is added to an error answer, such as a failed authorization. Raises KafkaProtocolError.
    """
    if not isinstance(note, UserFilter):
        return None
    values = _rates(note, quotas)
    if not values:
        return None
    try:
        return client_quotas.adding_user_values(buf, start, end, api_version, values)
    except FrameTooLarge as problem:
        # Without the gateway's own quotas the answer would be wrong without any sign of it.
        why = f"{problem}; ask for one user"
        return client_quotas.describe_refused(buf, start, api_version, ErrorCode.INVALID_REQUEST, why)


def _rates(wanted: UserFilter, quotas: Quotas) -> dict[str | None, dict[str, float]]:
    found: dict[str | None, dict[str, float]] = {}
    if wanted.matches(None) and (of_default := _set_rates(quotas, None, quotas.default)):
        found[None] = of_default
    named = wanted.names
    if named is None:
        named = frozenset((*quotas.users, *(user for user, client in quotas.bytes.rates if client is None)))
    for name in named:
        if not name or is_unidentified(name):
            continue  # not a name of a Kafka principal
        if rates := _set_rates(quotas, name, quotas.users.get(name, NOT_SET)):
            found[name] = rates
    return found


def _set_rates(quotas: Quotas, user: User | None, quota: UserQuota) -> dict[str, float]:
    """Return the configured rates of the user by key, in ids per window and bytes per second."""
    rates_milli = dict(zip(KEYS, rates_of(quota), strict=True))
    if quotas.bytes.at_gateway:
        for setting in BYTE_RATES:
            given = value_in_force(quotas, setting, user)
            rates_milli[setting.value] = given if isinstance(given, int) else None
    return {key: rate_milli / _MILLI for key, rate_milli in rates_milli.items() if rate_milli is not None}
