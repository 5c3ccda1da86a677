"""The table of mutants: rules that guard records and quotas, each broken in one way, and what notices it.

An entry stays here as long as its breach loses, doubles or reorders records, or sheds a quota. `BY_SCHEDULE` has those
that a schedule of the simulator notices (run in tests/unit/simulator/test_schedules.py), `BY_TEST` the others (run in
tests/unit/support/test_mutants.py). `CONTROLS` shows that the simulator's checks of other rules can fail; it runs with
`BY_SCHEDULE`. The rule is the sentence of a `@rule` mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest

from pidgate.gateway.admin import access
from pidgate.gateway.lane.lanes import Left
from pidgate.gateway.proxy import client_connection, reading, session
from pidgate.gateway.proxy.actions import WAITING
from pidgate.gateway.proxy.apis import authentication, produce
from pidgate.gateway.proxy.apis.api import FORWARD, Api, ApiContext, InFlightRequests, Login, Surroundings
from pidgate.gateway.proxy.apis.authentication import SaslAuthenticateApi, finish_login
from pidgate.gateway.proxy.apis.fetch import FETCH_API
from pidgate.gateway.proxy.apis.passing_produce import has_passed, may_pass
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.table import APIS
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.broker_link import BrokerLink
from pidgate.gateway.proxy.buffers import BudgetShare, Purpose
from pidgate.gateway.proxy.byte_waits import ByteWaits
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.lending import Lending
from pidgate.gateway.proxy.session import HELD_OVERHEAD_BYTES, Session
from pidgate.gateway.proxy.tls_connections import AcceptedTls
from pidgate.gateway.proxy.tls_inbox import TlsInbox
from pidgate.gateway.quotas.change_log import ChangeLog
from pidgate.gateway.state import cold_start, manager, publisher
from pidgate.gateway.state.cold_start import ColdStart
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.protocol import sasl
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.protocol.transaction_parts import ADD_PARTITIONS_TO_TXN
from pidgate.protocol.versions import SPOKEN
from pidgate.quota import byte_quota, entities, fail_open, fuse, users
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import Kind
from pidgate.quota.decisions import FORWARD as FORWARDED
from pidgate.quota.decisions import (
    NO_PRODUCER_ID,
    Bound,
    Client,
    Decision,
    ProducerBatch,
    Reason,
    Refuse,
    Verdict,
    refusal_of,
)
from pidgate.quota.entities import EffectiveQuota
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.grants import MOST_GRANTED_PARTITIONS, Grants
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import Restorer
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.sticky import HeldBeginnings, StickyRefusals
from pidgate.quota.sticky_entries import WatchedId
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import Grace, LiveUser
from tests.simulator import lanes
from tests.simulator.every import SmallWorld
from tests.simulator.themes import Theme
from tests.support.breaking import (
    Breach,
    Break,
    Scheduled,
    Tested,
    always,
    around,
    never,
    nothing,
    nothing_later,
    replaced,
    rewritten,
)


def _cache_first(_: Admission, client: Client, batches: Iterable[Any], key: int, now_ms: int) -> bool:
    return all(client.admitted.get(batch[0]) == key for batch in batches)


def _hot_path_first(_: Admission, client: Client, producer_id: int, *rest: object) -> bool:
    return producer_id in client.admitted


def _lifted(by: Callable[[Quotas], bool]) -> Break:
    """Have such quotas lift every refusal when they come into force."""

    def make(before: Any) -> Any:
        def set_quotas(self: Admission, quotas: Quotas, now_ms: int) -> None:
            before(self, quotas, now_ms)
            if by(quotas):
                self.sticky = StickyRefusals(quotas.producer_ids.sticky_entries)

        return set_quotas

    return around(Admission, "set_quotas", make)


def _is_observed(quotas: Quotas) -> bool:
    return quotas.mode is Mode.OBSERVE


def _exempts_somebody(quotas: Quotas) -> bool:
    return any(user.exempt for user in quotas.users.values())


def _lifted_by_more(before: Any) -> Any:
    """A raised rate lifts what was refused, as if it had passed."""

    def set_quotas(self: Admission, quotas: Quotas, now_ms: int) -> None:
        earlier = self.quotas.default.producer_ids_rate_milli
        before(self, quotas, now_ms)
        if earlier is None or earlier >= (quotas.default.producer_ids_rate_milli or 0):
            return
        for user, records in self.sticky.watched.items():
            for producer_id, record in records.items():
                for key, entry in list(record.entries.items()):
                    record.note_forwarded(entry.epoch, *key, entry.connection_id)
                    self.sticky._end_entry(user, producer_id, record, key)

    return set_quotas


def _expiring(patch: pytest.MonkeyPatch) -> None:
    before = StickyRefusals.find_watched_id

    def is_over(_: StickyRefusals, record: WatchedId, now_ms: int) -> bool:
        return now_ms - record.refused_at_ms >= 1_000

    def find_watched_id(self: StickyRefusals, user: str, producer_id: int, now_ms: int) -> WatchedId | None:
        record = self.watched.get(user, {}).get(producer_id)
        if record is not None and is_over(self, record, now_ms):
            for key in list(record.entries):
                self._end_entry(user, producer_id, record, key)
            del self.watched[user][producer_id]
            self._room.ids -= 1
        return before(self, user, producer_id, now_ms)

    patch.setattr(StickyRefusals, "watch_is_over", is_over)
    patch.setattr(StickyRefusals, "find_watched_id", find_watched_id)


def _all_lifted(_: StickyRefusals, record: WatchedId, key: Any) -> list[Any]:
    return list(record.entries)


def _latest_stands(before: Any) -> Any:
    def record_refusal(
        self: StickyRefusals,
        user: str,
        batch: ProducerBatch,
        connection_id: int,
        now_ms: int,
        throttle_ms: int = 0,
    ) -> None:
        record = self.watched.get(user, {}).get(batch[0])
        key = (batch[3], batch[4])
        if record is not None and (found := self._entry_key(record, *key)) in record.entries:
            self._end_entry(user, batch[0], record, found)
        before(self, user, batch, connection_id, now_ms, throttle_ms)

    return record_refusal


def _any_connection(
    self: StickyRefusals, record: WatchedId, epoch: int, topic: bytes, partition: int, _: int
) -> bool:
    return record.forwarded_over(epoch, self.topics.canonical(topic), partition) is not None


def _entry_stays(self: StickyRefusals, user: str, batch: ProducerBatch, now_ms: int) -> bool:
    record = self.watched[user][batch[0]]
    return now_ms >= record.entries[self._entry_key(record, batch[3], batch[4])].overdue_ms


def _first_held_only(patch: pytest.MonkeyPatch) -> None:
    before = Session._hold

    def hold(self: Session, request: Any, now_ms: int) -> None:
        if not self.held:
            before(self, request, now_ms)
            return
        self.held_bytes += request.copy_frame() + HELD_OVERHEAD_BYTES
        self.held.append(request)
        self.context.actions.append(WAITING)

    patch.setattr(Session, "_hold", hold)


def _refusal(rule: str, breaks: Break, seed: int, theme: Theme = Theme.REFUSALS) -> Scheduled:
    return Scheduled(rule, breaks, Breach.OVERTAKEN, theme, seed)


def _sticky(
    rule: str, name: str, by: Callable[..., Any], seed: int, theme: Theme = Theme.REFUSALS
) -> Scheduled:
    return _refusal(rule, replaced(StickyRefusals, name, by), seed, theme)


def _noted(rule: str, breaks: Break, seed: int) -> Scheduled:
    return _refusal(rule, breaks, seed, Theme.HELD)


_SENT: Final = ("send", "java-1", 0, 1)


_NOTED_FIRST: Final = (
    "A batch behind a held beginning of its partition is refused once, whatever the caches say."
)


_OVER_NOTES: Final = (
    "A batch behind a held beginning of its partition is refused once, whatever the caches say."
)


def _by_connection(before: Any) -> Any:
    def __init__(self: ApiContext, at: Surroundings, client: Client) -> None:
        client.user = f"{client.user}/{client.connection_id}"
        before(self, at, client)

    return __init__


def _as_it_is(_: object, node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def _without_looking(self: Session, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    return self.is_open(now_ms) and self.context.repeated.recognise_beginning(beginning, request_bytes)


def _known_anywhere(self: Session, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    begins = _without_looking(self, beginning, request_bytes, now_ms)
    return begins and self.context.repeated.producer_id in self.context.client.admitted


def _happens_at_its_beginning(patch: pytest.MonkeyPatch) -> None:
    before = Session.may_stream

    def may_stream(self: Session, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
        passes = before(self, beginning, request_bytes, now_ms)
        if passes:
            has_passed(self.context, request_bytes, now_ms)
        return passes

    patch.setattr(Session, "may_stream", may_stream)
    patch.setattr(session, "has_passed", nothing)


def _never_given_back(before: Any) -> Any:
    def hold(self: BudgetShare, purpose: Purpose, amount_bytes: int) -> None:
        if amount_bytes:
            before(self, purpose, amount_bytes)

    return hold


def _enforced_at_once(before: Any) -> Any:
    def __init__(self: QuotaStateManager, *args: Any, **more: Any) -> None:
        before(self, *args, **more)
        self.state.is_restored = True

    return __init__


def _inserted_first(before: Any) -> Any:
    def decide_ids(
        self: ProducerIdQuota, client: Client, live: Any, ids: list[Decision], now_ms: int
    ) -> Verdict:
        verdict: Verdict = before(self, client, live, ids, now_ms)
        if isinstance(verdict, Refuse):
            for decision in ids:
                self.insert_uncharged(client.user, decision.producer_id, now_ms)
        return verdict

    return decide_ids


def _unrestored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuotaStateManager, "_restore_from_directory", nothing_later)
    patch.setattr(QuotaStateManager, "_restore_from_topic", nothing_later)


def _one_more(before: Any) -> Any:
    def wait_ms(self: TokenBucket, place: int, now_ms: int) -> Any:
        return before(self, place - 1, now_ms)

    return wait_ms


def _has_no_topic(self: EventLog) -> bool:
    return self.publisher is None


def _refusal_passed_on(rule: str, breaks: Break, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, Breach.OVERTAKEN, Theme.PASSING, seed)


def _quota(rule: str, breaks: Break, theme: Theme, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, Breach.QUOTA, theme, seed)


_KEPT_WHOLE: Final = "A request that may be refused or held is buffered whole."


_ADMISSION: Final = "tests/unit/quota/test_admission.py::"


def _whole_as_rest(before: Any) -> Any:
    def part(rate_milli: int | None, rates: Mapping[str, int], client_id: str | None) -> Any:
        return rate_milli if client_id is None else before(rate_milli, rates, client_id)

    return part


def _released_at_once(before: Any) -> Any:
    def decide_ids(self: ProducerIdQuota, client: Client, live: Any, ids: list[Decision], now_ms: int) -> Any:
        for decision in ids:
            decision.above_0 &= (client.user, decision.producer_id) not in self.table.refusals.released
        return before(self, client, live, ids, now_ms)

    return decide_ids


def _lifted_by_an_error(before: Any) -> Any:
    def refuse_out_of_order(self: Admission, request: Any) -> Any:
        return None if self.fail_open.passed else before(self, request)

    return refuse_out_of_order


def _only_its_own(before: Any) -> Any:
    def record_refusal(self: Admission, request: Any, refusal: Any) -> Any:
        own = [batch for batch in request.batches if batch[0] == refusal.producer_id]
        return before(self, replace(request, batches=own), refusal)

    return record_refusal


def _watch_forgotten(self: StickyRefusals, user: str, producer_id: int, record: Any) -> None:
    for oldest in self._cut.count(user, producer_id, len(record.cut)):
        del self.watched[user][oldest]


def _inherits_from_anybody(self: ProducerIdQuota, user: str, old: int, new: int, now_ms: int) -> bool:
    self.insert_uncharged(user, new, now_ms, transactional=True)
    return True


def _blocked_ones_too(before: Any) -> Any:
    def ids_left(
        self: Grace, quota: EffectiveQuota, rate_milli: int | None, admitted: int, now_ms: int
    ) -> int:
        return int(before(self, quota, rate_milli or None, admitted, now_ms))

    return ids_left


def _only_principals(before: Any) -> Any:
    def resolve(quotas: Any, user: str) -> Any:
        found = before(quotas, user)
        return replace(found, rate_milli=None) if entities.is_unidentified(user) else found

    return resolve


def _holds_first_batches(before: Any) -> Any:
    def judge_while_muted(self: Admission, client: Client, batches: Any, **how: Any) -> Any:
        verdict = before(self, client, batches, **how)
        return None if getattr(verdict, "reason", None) is Reason.ESTABLISHED else verdict

    return judge_while_muted


_CONVERSATION: Final = "tests/unit/gateway/proxy/test_session.py::"


_PASSING: Final = "tests/unit/gateway/proxy/test_passing_on.py::"


_USERS: Final = "tests/unit/gateway/proxy/test_sasl_users.py::"


_SLOW: Final = (
    "tests/unit/gateway/proxy/test_writing_from_shared_buffer.py::test_a_slow_peer_gets_all_of_it_in_order"
)


_BYTES: Final = "tests/unit/gateway/proxy/test_bytes_on_a_connection.py::"


def _answered_anyway(before: Any) -> Any:
    def walk(self: RepeatedProduce, *frame: Any) -> Any:
        _, transactional, batches = before(self, *frame)
        return 1, transactional, batches

    return walk


def _refusal_answered(before: Any) -> Any:
    def stop(context: Any, request: Any, verdict: Any, acks: int, now_ms: int) -> Any:
        return before(context, request, verdict, 1, now_ms)

    return stop


def _each_his_own() -> Callable[[str], str]:
    numbers = count()
    return lambda mechanism: f"\0{mechanism}/{next(numbers)}"


def _token_after_token(before: Any) -> Any:
    def record_client_token(self: SaslExchange, token: bytes) -> None:
        self._unanswered = None
        before(self, token)

    return record_client_token


_NO_LOGIN_UNDER_WAY: Final = replaced(Login, "sasl_in_flight", property(lambda _: 0, nothing))


def _passes_until_known(before: Any) -> Any:
    def before_login(self: Session, request: Any) -> Any:
        if self.context.at.authentication.required is None:
            return request.api.handle_request(self.context, request, 0)
        return before(self, request)

    return before_login


def _reset(before: Any) -> Any:
    def leave(self: BrokerLink) -> bool:
        if self.channel is not None:
            self.channel.socket.abort()
        left: bool = before(self)
        return left

    return leave


def _no_topic_is_forbidden(patch: pytest.MonkeyPatch) -> None:
    before = RepeatedProduce.__init__

    def __init__(self: RepeatedProduce, *_: Any) -> None:
        before(self)

    patch.setattr(RepeatedProduce, "__init__", __init__)


def _muted(rule: str, test: str, at: str) -> Tested:
    return Tested(rule, replaced(ApiContext, "mute", nothing), test, at)


# ---- lanes ---------------------------------------------------------------------------------------------


_GRANT_ENDS: Final = "A grant ends before what it says stops being true."
_LENT: Final = (
    "A lane loses, doubles and reorders no byte, however often it lends a connection and gives it back."
)


def _lane(rule: str, breaks: Break, breach: Breach, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, breach, Theme.LANES, seed)


def _comes_back(breach: Breach, seed: int, **but: Any) -> Scheduled:
    """Have a connection come back with something else."""

    def make(before: Any) -> Any:
        def go_on(self: Lending, left: Left) -> None:
            before(self, left._replace(**but))

        return go_on

    return _lane(_LENT, around(Lending, "_go_on", make), breach, seed)


def _rest_first(before: Any) -> Any:
    def go_on(self: Lending, left: Left) -> None:
        before(self, left._replace(to_client=b"", to_broker=b""))
        connection = self._connection
        broker = connection.broker.channel
        assert broker is not None
        for channel, unsent in ((self._client, left.to_client), (broker, left.to_broker)):
            if unsent:
                connection.context.loop.call_later(0.002, channel.socket.write, unsent)

    return go_on


def _twice(before: Any) -> Any:
    def counted(self: Lending, counts: Any) -> None:
        before(self, counts)
        before(self, counts)

    return counted


def _all_partitions(*_: object) -> int:
    return (1 << MOST_GRANTED_PARTITIONS) - 1


def _granted(breaks: Break) -> Tested:
    return Tested(
        _GRANT_ENDS,
        breaks,
        "tests/unit/quota/test_grants.py::test_what_is_granted_is_known_until_a_cell_changes",
        "admission.knows",
    )


# ---- identity ------------------------------------------------------------------------------------------


def _in_any_case(before: Any) -> Any:
    def extensions(fields: list[str]) -> dict[str, str] | None:
        found = before(fields)
        return None if found is None else {name.lower(): value for name, value in found.items()}

    return extensions


def _owner_not_awaited(before: Any) -> Any:
    def response(api: Any, context: Any, request: Any, answer: Any) -> Any:
        context.login.named_user = context.login.awaits_owner
        context.login.awaits_owner = False
        return before(api, context, request, answer)

    return response


def _stays_nobody(context: Any, identity: Any) -> str:
    before: str = context.client.user
    return entities.unidentified(identity.mechanism) if entities.is_unidentified(before) else before


def _name_dropped(_context: object, identity: Any) -> str:
    return identity.user or entities.unidentified(identity.mechanism)


def _looks_at_no_certificate(before: Any) -> Any:
    def __init__(*arguments: Any) -> None:
        before(*arguments[:5])

    return __init__


def _learns_that_none_is_needed(self: Session) -> Any:
    finish_login(self.context)
    return self.context.take_actions()


def _never_missing(before: Any) -> Any:
    def __init__(self: Login, *arguments: Any) -> None:
        before(self, *arguments)
        self.is_missing = False

    return __init__


# ---- bytes on their way --------------------------------------------------------------------------------


def _overtaking(transport: Any, descriptor: int, view: memoryview) -> None:
    """Do not ask whether the transport holds earlier bytes."""
    with suppress(BlockingIOError):
        view = view[os.write(descriptor, view) :]
    if view:
        transport.write(bytes(view))


def _not_copying(transport: Any, _descriptor: int, view: memoryview) -> None:
    """Leave bytes of the shared buffer with the transport."""
    transport.write(view)


def _muted_or_not(self: Session, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    return may_pass(self.context, beginning, request_bytes, now_ms)


def _merely_passes(patch: pytest.MonkeyPatch) -> None:
    for version in range(SPOKEN[ADD_PARTITIONS_TO_TXN].max_version + 1):
        patch.setitem(APIS, ADD_PARTITIONS_TO_TXN << 16 | version, Api())


# ---- ids asked for, grace, changes ---------------------------------------------------------------------


def _bound_of_produce_alone(before: Any) -> Any:
    def _bound_milli(quotas: Quotas, decision: Decision, transactional_id: int | None) -> int | None:
        bound: int | None = before(quotas, decision, transactional_id)
        return None if decision.producer_id == NO_PRODUCER_ID else bound

    return _bound_milli


def _refused_transactional_id_known(before: Any) -> Any:
    def decide_transactional_id(
        self: ProducerIdQuota, live: Any, decision: Decision, hashed: int, now_ms: int
    ) -> Verdict:
        verdict: Verdict = before(self, live, decision, hashed, now_ms)
        if isinstance(verdict, Refuse):
            self.restorer.restore_transactional_id(decision.user, hashed, now_ms, now_ms, Reason.REFRESH)
        return verdict

    return decide_transactional_id


def _gives_always(*_: object) -> Verdict:
    return FORWARDED


def _forgets_the_cluster(self: ProducerIdQuota, live: LiveUser, place: int, now_ms: int, **_: Any) -> Any:
    own = live.active_bucket
    return (own.wait_ms(place, now_ms) if own else 0), Bound.USER


def _all_for_one_token(before: Any) -> Any:
    def decide_new_id(self: ProducerIdQuota, live: LiveUser, decision: Decision, now_ms: int) -> Any:
        live.given.clear()
        return before(self, live, decision, now_ms)

    return decide_new_id


def _once_per_address(before: Any) -> Any:
    def decide(self: ProducerIdQuota, client: Client, *rest: Any) -> Any:
        return FORWARDED if client.address == "10.0.0.2" else before(self, client, *rest)

    return decide


def _grace_without_bound(self: ProducerIdQuota, live: LiveUser, ahead: int, now_ms: int) -> bool:
    return now_ms < self.table.grace.until_ms


def _any_balance(before: Any) -> Any:
    def restore_tokens(self: Restorer, user: str, units: int, token_units: int, at_ms: int) -> None:
        self._table.live(user, at_ms).restored_ms = None
        before(self, user, units, token_units, at_ms)

    return restore_tokens


def _grace_forgets_the_others(before: Any) -> Any:
    def begin_grace(self: ProducerIdQuota, until_ms: int) -> None:
        before(self, until_ms)
        self.table.live("alice", 0).grace_admitted = 0

    return begin_grace


def _wall_ms() -> int:
    """Read the clock that a test has given to the module."""
    return int(vars(cold_start)["wall_ms"]())


def _ends_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    until_wall_ms = 0
    before = ColdStart._begin

    def begin(self: ColdStart, grace_ms: int, reason: str) -> None:
        nonlocal until_wall_ms
        until_wall_ms = _wall_ms() + grace_ms
        before(self, grace_ms, reason)

    def grace_left_ms(self: ColdStart) -> int:
        return max(0, until_wall_ms - _wall_ms()) if self._until_ms else 0

    patch.setattr(ColdStart, "_begin", begin)
    patch.setattr(ColdStart, "grace_left_ms", property(grace_left_ms))


def _later_clock_wins(before: Any) -> Any:
    def apply_change(self: ChangeLog, told: Any, target: Any) -> Any:
        known = self._reading if self._reading is not None else self._kept
        earlier = known.get(target)
        if earlier is not None and earlier.what.set_wall_ms > told.what.set_wall_ms:
            self._settle(target, told.id)
            return None
        return before(self, told, target)

    return apply_change


def _misread(file: str, good: str, bad: str) -> Tested:
    path = f"pidgate/protocol/{file}.py"
    walks = file == "produce"
    test = (
        "a_walk_reads_every_form_as_the_general_reader_does"
        if walks
        else "what_is_known_again_is_what_the_general_reader_reads"
    )
    return Tested(
        "Numbers, strings and headers have one parser, exact as Kafka's.",
        rewritten(path, good, bad),
        f"tests/unit/protocol/test_produce_varints.py::test_{test}",
        "differences(walk) == []" if walks else "wrong == []",
    )


def _looks_at_less(good: str, bad: str) -> Tested:
    return Tested(
        "A repeated Produce is recognised only if no field that the quota reads differs.",
        rewritten("pidgate/protocol/repeated_produce.py", good, bad),
        "tests/unit/protocol/test_repeated_produce.py::test_whatever_byte_is_changed_it_is_read_as_by_walk",
        "not misread(RepeatedProduce)",
    )


def _new_id(rule: str, breaks: Break, name: str, at: str) -> Tested:
    return Tested(
        rule,
        breaks,
        "tests/unit/quota/test_new_ids.py::test_the_code_keeps_every_rule",
        at,
        given={"rule": name},
    )


def _paid(rule: str, breaks: Break, name: str, at: str) -> Tested:
    return Tested(
        rule,
        breaks,
        "tests/unit/quota/test_paid_ids.py::test_the_code_keeps_every_rule",
        at,
        given={"rule": name},
    )


def _account(rule: str, breaks: Break, breach: Breach, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, breach, Theme.ACCOUNTS, seed)


def _count_of_five(before: Any) -> Any:
    def end_overdue_entry(self: StickyRefusals, user: str, batch: ProducerBatch, now_ms: int) -> bool:
        record = self.watched[user][batch[0]]
        entry = record.entries[self._entry_key(record, batch[3], batch[4])]
        return len(entry.later) >= 5 or before(self, user, batch, now_ms)

    return end_overdue_entry


_WAITS_FOR_BYTES: Final = (
    "A byte debt makes every connection of its account wait, old or new, "
    "and nothing but its Produce or Fetch."
)
_RELIEVED: Final = (
    "A changed quota, mode or exemption ends every wait that it concerns within 2 s, on the same connection."
)

BY_SCHEDULE: Final[dict[str, Scheduled]] = {
    "a new connection sheds a byte debt": _account(
        _WAITS_FOR_BYTES, replaced(ApiContext, "account_in_debt", nothing), Breach.BYTES, 2
    ),
    "cache before sticky": _refusal(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        replaced(Admission, "_are_known", _cache_first),
        11,
    ),
    "the hot path before sticky": _refusal(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        replaced(Admission, "knows", _hot_path_first),
        11,
    ),
    "no rule for first sight above 0": _refusal(
        "The first batch of an unknown id above sequence 0 is refused once, for 100 ms.",
        replaced(Admission, "_is_above_0", never),
        13,
    ),
    "lifted by an exemption": _refusal(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        _lifted(_exempts_somebody),
        8,
    ),
    "lifted by observing": _refusal(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        _lifted(_is_observed),
        22,
    ),
    "lifted by a raised rate": Scheduled(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        around(Admission, "set_quotas", _lifted_by_more),
        Breach.OVERTAKEN,
        acts=(_SENT, ("rate", 20), ("wait", 1_000), ("send", "java-1", 1, 1), _SENT),
        small=SmallWorld("java"),
    ),
    "entries expire by age": _refusal(
        "An entry ends with its batch, its connection or a newer epoch, never by age.", _expiring, 40
    ),
    "an entry is in nobody's way": _sticky(
        "Everything above a refused batch is refused while its entry stands, with any number in flight.",
        "are_partitions_clear",
        always,
        11,
    ),
    "lifted per id, not per partition": _sticky(
        "An entry ends with its batch, its connection or a newer epoch, never by age.",
        "entries_lifted_by",
        _all_lifted,
        11,
    ),
    "lifted by a batch above": _sticky(
        "Everything above a refused batch is refused while its entry stands, with any number in flight.",
        "is_above",
        never,
        1,
        Theme.RESTLESS,
    ),
    "an entry does not move on": _sticky(
        "An entry moves on to the next refused batch; the lowest one goes first.", "advance_entry", never, 15
    ),
    "the latest refusal stands": _refusal(
        "An entry moves on to the next refused batch; the lowest one goes first.",
        around(StickyRefusals, "record_refusal", _latest_stands),
        15,
    ),
    "passed over any connection": _sticky(
        "A batch has passed only on the connection it was forwarded on.",
        "was_forwarded_over",
        _any_connection,
        25,
    ),
    "nobody notes a beginning": _noted(_NOTED_FIRST, replaced(HeldBeginnings, "note", nothing), 1),
    "what is behind a held request is not noted": _noted(_NOTED_FIRST, _first_held_only, 1),
    "a cache answers in spite of a note": _noted(
        _OVER_NOTES, replaced(Admission, "_are_known", _cache_first), 3
    ),
    "the hot path answers in spite of a note": _noted(
        _OVER_NOTES, replaced(HeldBeginnings, "is_any_beginning_held", never), 36
    ),
    "a held beginning is not told": Scheduled(
        "A beginning that a mute holds is told to the other gateways.",
        replaced(Admission, "hold_decisions", lambda *_, **__: ()),
        Breach.OVERTAKEN,
        Theme.ONE_PORT,
        1,
    ),
    "what a broker did not take has passed": _noted(
        "A batch that a broker answered with an error has not passed.",
        replaced(StickyRefusals, "forget_failed_batches", nothing),
        15,
    ),
    "refusals elsewhere are not heard": Scheduled(
        "A gateway watches new ids and the ids that other gateways refused.",
        replaced(StickyRefusals, "watch_refused_elsewhere", nothing),
        Breach.OVERTAKEN,
        acts=(_SENT, ("mode", None, False), ("lead", 0, 2), _SENT),
    ),
    "answers of our own do not wait for their turn": Scheduled(
        "Responses leave in the order of the requests.",
        replaced(InFlightRequests, "add_own_answer", never),
        Breach.OUT_OF_TURN,
        Theme.REFUSALS,
        1,
    ),
    "each connection has a quota of its own": _quota(
        "A quota belongs to the user, whatever connection, address or gateway a request uses.",
        around(ApiContext, "__init__", _by_connection),
        Theme.REFUSALS,
        1,
    ),
    "real addresses pass": Scheduled(
        "No real broker address reaches a client.",
        replaced(ConnectionContext, "translate", _as_it_is),
        Breach.ADDRESS,
        Theme.REFUSALS,
        1,
    ),
    "any large request is passed on": _refusal_passed_on(
        _KEPT_WHOLE, replaced(Session, "may_stream", _without_looking), 8
    ),
    "passed on in spite of a refusal": _refusal_passed_on(
        _KEPT_WHOLE, replaced(Session, "may_stream", _known_anywhere), 11
    ),
    "inserted before charged": _quota(
        "A refused request spends no tokens, and a refused id is not remembered.",
        around(ProducerIdQuota, "_decide_ids", _inserted_first),
        Theme.REFUSALS,
        1,
    ),
    "admissions elsewhere are not charged": _quota(
        "An id admitted by another gateway is charged here once; a refresh there is free.",
        replaced(ProducerIdQuota, "admitted_elsewhere", never),
        Theme.FLEET,
        1,
    ),
    "nothing is restored": _quota(
        "A restored state remembers its ids and balances.", _unrestored, Theme.OUTAGES, 4
    ),
    "an admission is in a snapshot a while later": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        lambda patch: patch.setattr(manager, "SAVE_UNSENT_EVERY_S", 60.0),
        Theme.SNAPSHOTS,
        17,
    ),
    "a topic that is cut off makes no snapshot": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        replaced(EventLog, "lacks_events", _has_no_topic),
        Theme.SNAPSHOTS,
        29,
    ),
    "a snapshot leaves out users that have changed": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        replaced(LiveUser, "needs_saving", never),
        Theme.SNAPSHOTS,
        17,
    ),
    "an admission is in the topic a while later": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        lambda patch: patch.setattr(publisher, "BATCHES_APART_S", 5.0),
        Theme.FLEET,
        1,
    ),
    "a bucket with two more": _quota(
        "A bucket admits its capacity, its refill and one more.",
        around(TokenBucket, "wait_ms", _one_more),
        Theme.REFUSALS,
        1,
    ),
    "a lane compares no cell": _lane(
        "No request passes in a lane once a cell of its grant was bumped.",
        replaced(lanes.Cell, "bump", nothing),
        Breach.OVERTAKEN,
        5,
    ),
    "a change of an id ends no grant": _lane(
        _GRANT_ENDS, replaced(Grants, "changed", nothing), Breach.OVERTAKEN, 5
    ),
    "a change of quotas ends no grant": _lane(
        _GRANT_ENDS, replaced(Grants, "all_changed", nothing), Breach.BYTES, 3
    ),
    "a grant in spite of a held beginning": _lane(
        _OVER_NOTES, replaced(HeldBeginnings, "is_any_of_id_held", never), Breach.OVERTAKEN, 25
    ),
    "a lane loses requests in flight": _comes_back(Breach.UNASKED, 4, in_flight=[]),
    "a lane loses what is unsent": _comes_back(Breach.UNREAD, 9, to_client=b"", to_broker=b""),
    "a lane loses the requests it has read": _comes_back(Breach.OUT_OF_TURN, 3, client_rest=b""),
    "a lane loses the answers it has read": _comes_back(Breach.UNASKED, 4, broker_rest=b""),
    "a lane loses the rest of a request": _comes_back(Breach.PROTOCOL, 9, request_left=0, under_way=None),
    "a lane loses the rest of an answer": _comes_back(Breach.UPSTREAM, 9, answer_left=0),
    "what is unsent leaves behind the rest": _lane(
        _LENT, around(Lending, "_go_on", _rest_first), Breach.GARBLED, 9
    ),
}


def _all_contribute(_: Any) -> Any:
    def contributions(self: fuse.Fuse, *_: Any, **__: Any) -> Any:
        return ((owner, 1) for owner in {entities.owner_of(one)[0] for one in self._state.users()})

    return contributions


def _refuses_in_debt(before: Any) -> Any:
    def decide_ids(
        self: ProducerIdQuota, client: Client, live: LiveUser, ids: list[Decision], now_ms: int
    ) -> Any:
        bucket = live.pairs_bucket
        wait_ms = 0 if bucket is None else bucket.wait_ms(0, now_ms)
        if not wait_ms:
            return before(self, client, live, ids, now_ms)
        ids[0].refuse(Reason.FIRST_SEEN, self._throttle_ms(wait_ms), bound=Bound.STATES)
        return refusal_of(self.table.quotas, ids[:1], self.account(client))

    return decide_ids


_PAIRS: Final = (
    "A known id may use any partition: its new pairs are charged, and new ids of its user wait for the debt."
)
_FUSED: Final = "The fuse enforces users above their own quota alone, and at all gateways."

CONTROLS: Final[dict[str, Scheduled]] = {
    "pairs are not charged": Scheduled(
        _PAIRS, replaced(ProducerIdQuota, "_charge_pair", nothing), Breach.STATES, Theme.ANYTHING, 468
    ),
    "a known id waits for its pairs": Scheduled(
        _PAIRS, around(ProducerIdQuota, "_decide_ids", _refuses_in_debt), Breach.KNOWN, Theme.ANYTHING, 13
    ),
    "the fuse enforces users below their quota": Scheduled(
        _FUSED,
        around(fuse.Fuse, "contributions", _all_contribute),
        Breach.FUSED,
        Theme.ANYTHING,
        135,
    ),
    "the fuse lets go after a second": Scheduled(
        _FUSED, replaced(fuse, "HOLDS_MS", 1_000), Breach.LET_GO, Theme.ANYTHING, 730
    ),
    "what a lane has carried counts twice": _lane(
        "A lane passes no request and no answer that Python would not pass, and counts what Python counts, however the "
        "bytes are cut.",
        around(Lending, "counted", _twice),
        Breach.COUNTED,
        1,
    ),
    "a Fetch of a session is answered empty": _account(
        "No Fetch passes a byte debt.",
        rewritten(
            "pidgate/protocol/throttle.py",
            "request.i32() > _NEW_SESSION and error is ErrorCode.NONE",
            "False",
        ),
        Breach.SESSION,
        5,
    ),
    "a throttle without a limit": _account(
        "A wait by bytes is told up to 30 s.",
        replaced(byte_quota, "LONGEST_TOLD_MS", 1_000_000),
        Breach.TOLD,
        2,
    ),
    "a byte debt holds heartbeats": _account(
        _WAITS_FOR_BYTES, replaced(Api, "paid_by", Kind.FETCH), Breach.GROUP, 15
    ),
    "lifted rates leave accounts alone": _account(
        _RELIEVED,
        replaced(ByteWaits, "follow_quotas", nothing),
        Breach.RELIEF,
        26,
    ),
    "lifted rates leave mutes alone": _account(
        _RELIEVED,
        replaced(Session, "follow_quotas", lambda *_: []),
        Breach.RELIEF,
        5,
    ),
    "many in flight are closed": _account(
        "Everything above a refused batch is refused while its entry stands, with any number in flight.",
        around(StickyRefusals, "end_overdue_entry", _count_of_five),
        Breach.CLOSED,
        12,
    ),
    "broken protocol drops answers": _account(
        "A connection that ends reads no more, answers what is in flight, and is closed then.",
        replaced(client_connection, "CLOSES_NOW", client_connection.CLOSES_NOW | {"protocol"}),
        Breach.DUE,
        36,
    ),
    "memory is not given back": Scheduled(
        "Memory is released when its connection ends.",
        around(BudgetShare, "hold", _never_given_back),
        Breach.MISCOUNTED,
        Theme.REFUSALS,
        1,
    ),
    "enforced at once": Scheduled(
        "While the state is being restored ten windows' worth of new ids of a user pass; the rest waits and is judged.",
        around(QuotaStateManager, "__init__", _enforced_at_once),
        Breach.EARLY,
        Theme.OUTAGES,
        4,
    ),
}

BY_TEST: Final[dict[str, Tested]] = {
    "the rest is the whole": Tested(
        "A client id with a rate has a part of its user's rate; all other client ids share the rest.",
        around(entities, "_part", _whole_as_rest),
        "tests/unit/quota/test_client_ids.py::test_a_thousand_client_ids_get_not_one_id_more_than_one",
        "assert one == 151",
    ),
    "an account has its own filters": Tested(
        "An id stays known when the file gives its client id a rate, or takes it back.",
        rewritten(
            "pidgate/quota/users.py",
            "if client_id is not None:\n            of_user",
            "if client_id == 0:\n            of_user",
        ),
        "tests/unit/quota/test_client_ids.py::"
        "test_a_running_producer_is_not_new_when_its_client_id_gets_a_rate",
        "assert verdict == Forward()",
    ),
    "a first batch above 0 is held": Tested(
        "Behind a mute the first batch of a partition above sequence 0 is refused, not held.",
        around(Admission, "judge_while_muted", _holds_first_batches),
        f"{_ADMISSION}test_behind_a_mute_a_first_batch_above_0_is_refused",
        "assert refused is not None",
    ),
    "a Fetch of a session passes after 20 s": Tested(
        "No Fetch passes a byte debt.",
        rewritten(
            "pidgate/gateway/proxy/apis/fetch.py",
            "if answer is not None:",
            "if answer is not None and not is_late:",
        ),
        "tests/unit/gateway/proxy/test_waiting_for_an_account.py::"
        "test_after_20_s_a_fetch_within_a_session_begins_a_new_session",
        'assert pair.broker.sent() == b""',
        given={"version": 12},
    ),
    "a release lifts": Tested(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        around(ProducerIdQuota, "_decide_ids", _released_at_once),
        "tests/unit/quota/test_commands.py::"
        "test_a_release_lets_nothing_pass_before_what_may_lie_unread_elsewhere",
        "is_refused(late)",
    ),
    "an error of the quota lifts": Tested(
        "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
        around(Admission, "_refuse_out_of_order", _lifted_by_an_error),
        f"{_ADMISSION}test_when_the_state_fails_requests_pass_and_what_was_refused_stays_first",
        "world.refusal(client, batch(1, 6)).reason is Reason.STICKY",
        given={"inserts": True},
    ),
    "no ceiling of what fails open": Tested(
        "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
        replaced(FailOpen, "_admits", always),
        "tests/unit/quota/test_fail_open.py::test_a_user_has_a_ceiling_of_its_own",
        '["passed"] * 20 + ["refused"] * 2',
    ),
    "who has no name has no quota": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        around(users, "resolve", _only_principals),
        f"{_ADMISSION}test_who_cannot_be_identified_has_a_quota",
        'world.refusal(world.connect(unidentified("OAUTHBEARER")),',
    ),
    "only the refused id has an entry": Tested(
        "A request is refused as a whole: each of its batches gets an entry.",
        around(Admission, "_record_refusal", _only_its_own),
        f"{_ADMISSION}test_a_remembered_id_in_a_refused_request_gets_its_entry_too",
        "world.refusal(client, batch(1, 6)).reason is Reason.STICKY",
    ),
    "new ids are not watched": Tested(
        "A gateway watches new ids and the ids that other gateways refused.",
        replaced(StickyRefusals, "watch_new_id", nothing),
        f"{_ADMISSION}test_a_young_id_above_0_on_an_unknown_partition_may_have_been_refused_elsewhere",
        "refused = world.refusal(elsewhere, batch(1, 3, partition=1))",
    ),
    "a watch is forgotten for its notes": Tested(
        "A batch on a partition whose history was evicted is refused once more.",
        replaced(StickyRefusals, "_count_notes", _watch_forgotten),
        "tests/unit/quota/test_sticky_notes.py::test_what_is_forgotten_is_refused_once_more_and_never_passed",
        "looks(7) == [Position.SAME, Position.FIRST_SIGHT, Position.FIRST_SIGHT]",
    ),
    "no deadline but the mute": Tested(
        "A new connection does not shed the throttle.",
        replaced(StickyRefusals, "set_deadline", nothing),
        f"{_ADMISSION}test_a_new_connection_does_not_shed_the_throttle",
        "(refused.reason, refused.throttle_time_ms) == (Reason.DEADLINE, 6_000)",
    ),
    "any id is inherited from": Tested(
        "The id handed out at the end of a transaction inherits its predecessor's admission.",
        replaced(ProducerIdQuota, "inherit", _inherits_from_anybody),
        f"{_ADMISSION}test_an_id_handed_out_at_the_end_of_a_transaction_is_not_charged",
        '(snapshot.tokens, snapshot.admitted) == (100, {"observe": 1,',
    ),
    "a grace lets blocked users in": Tested(
        "A rate of 0 blocks new ids, also under grace.",
        around(Grace, "ids_left", _blocked_ones_too),
        "tests/unit/quota/test_grace.py::test_who_is_blocked_is_blocked_under_grace",
        "isinstance(answer, Refuse)",
        given={"rate": 0, "cluster_rate_milli": None, "bound": Bound.USER},
    ),
    "what passed meanwhile is forgotten": Tested(
        "While the state is being restored ten windows' worth of new ids of a user pass; the rest waits and is judged.",
        replaced(ProducerIdQuota, "_hand_over_id", nothing),
        "tests/unit/quota/test_passed_while_restoring.py::test_what_the_restored_state_does_not_hold_is_charged_as_observed",
        'state.status("alice", 0).tokens == -1  # two tokens for six ids',
    ),
    "a broker's answer to acks=0 is waited for": Tested(
        "A request with acks=0 has no response, and its refusal closes the connection.",
        around(RepeatedProduce, "walk", _answered_anyway),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "admitted.talk.session.is_quiet",
    ),
    "a refused acks=0 is answered": Tested(
        "A request with acks=0 has no response, and its refusal closes the connection.",
        around(produce, "_stop", _refusal_answered),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "refused.send(produce(7, acks=0)) is CLOSE",
    ),
    "it happens at its beginning": Tested(  # a schedule in 400 notices it
        "A request counts as sent when its last byte has arrived; a broker sees no reset.",
        _happens_at_its_beginning,
        f"{_PASSING}test_a_client_that_leaves_in_the_middle_has_sent_nothing",
        "leaves_in_the_middle(scene)",
    ),
    "a reset in the middle of a frame": Tested(
        "A request counts as sent when its last byte has arrived; a broker sees no reset.",
        around(BrokerLink, "leave", _reset),
        f"{_PASSING}test_the_broker_sees_the_end_of_the_stream_and_no_reset",
        "not pair.broker.aborted",
    ),
    "each opaque token is somebody else": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        replaced(authentication, "unidentified", _each_his_own()),
        "tests/unit/gateway/proxy/test_sasl_users.py::test_an_opaque_token_belongs_to_all_such",
        'login(anonymous(), "OAUTHBEARER", OPAQUE) ==',
    ),
    "tokens in a row": Tested(
        "A second SaslAuthenticate before the response to the first closes the connection.",
        around(SaslExchange, "record_client_token", _token_after_token),
        "tests/unit/protocol/test_sasl.py::test_a_second_token_before_the_answer_ends_the_connection",
        'with pytest.raises(MalformedFrame, match="second SaslAuthenticate"):',
    ),
    "nobody waits for a login under way": Tested(
        "Requests behind an unanswered login wait for it.",
        _NO_LOGIN_UNDER_WAY,
        f"{_CONVERSATION}test_a_produce_waits_until_the_broker_has_said_who_it_is",
        "script.send(produce(7, correlation_id=3)) is TAKEN",
    ),
    "nobody waits until it is known whether there is a login": Tested(
        "Only ApiVersions and SASL pass before a login that is required or may be.",
        around(Session, "_decide_before_login", _passes_until_known),
        f"{_CONVERSATION}test_until_it_is_known_requests_wait",
        "script.send(metadata(1)) is TAKEN",
    ),
    # No schedule: while a batch of an id is refused, each of its requests is judged, and no such one is lent in flight.
    "a grant is for refused partitions, too": _granted(
        replaced(StickyRefusals, "clear_partitions", _all_partitions)
    ),
    "no mute after a refusal": _muted(
        "No request passes a mute; all of them go on in order when it ends.",
        f"{_CONVERSATION}test_nothing_passes_a_mute_and_all_of_it_goes_on_in_order",
        "[script.send(frame) for frame in held] == [TAKEN] * 3",
    ),
    "no mute by bytes without an answer": _muted(
        "No request passes a mute; all of them go on in order when it ends.",
        f"{_BYTES}test_without_an_answer_the_mute_holds_all_the_same",
        "pair.broker.sent() == frame",
    ),
    "no mute by bytes": _muted(
        "Bytes are never refused: a byte rate forwards the request and delays the next one.",
        f"{_BYTES}test_a_produce_above_the_rate_passes_then_mutes_and_its_answer_says_so",
        'pair.broker.sent() == over, "what is above the rate is forwarded, and',
    ),
    "anybody produces to a gateway topic": Tested(
        "No client produces to a topic of the gateway, however the request spells it.",
        _no_topic_is_forbidden,
        "tests/unit/gateway/proxy/test_gateway_topics.py::test_nothing_is_produced_to_it",
        "talk.send(produce(version, *topics, records=records)) is TAKEN",
        given={"version": 9, "records": None, "position": 0},
    ),
    "extensions in any case": Tested(
        "SASL and certificate fields controlled by the client are parsed exactly as Kafka parses them.",
        around(sasl, "_extensions", _in_any_case),
        "tests/unit/protocol/test_sasl.py::test_only_the_exact_extension_makes_a_token_of_a_name",
        "an_extension_makes_nobody_else_of_a_user()",
    ),
    "who authenticates twice does not wait": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        around(SaslAuthenticateApi, "handle_response", _owner_not_awaited),
        f"{_USERS}test_who_authenticates_twice_while_the_owner_is_asked_for_waits_all_the_same",
        'by_token(script) == "ANONYMOUS"',
    ),
    "who authenticates twice stays nobody": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        replaced(authentication, "_user", _stays_nobody),
        f"{_USERS}test_who_authenticates_twice_while_the_owner_is_asked_for_waits_all_the_same",
        'script.client.user == unidentified("SCRAM-SHA-256")',
    ),
    "a name is dropped": Tested(
        "A connection keeps its name when a later token has no readable one.",
        replaced(authentication, "_user", _name_dropped),
        f"{_USERS}test_who_authenticates_anew_keeps_a_name_that_cannot_be_read_this_time",
        'login(script, "OAUTHBEARER", OPAQUE) == "alice"',
    ),
    "the unknown are ANONYMOUS": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        replaced(authentication, "unidentified", lambda _mechanism: "ANONYMOUS"),
        f"{_USERS}test_who_cannot_be_read_is_enforced_all_the_same",
        "who_cannot_be_read_is_held_to_a_quota(mechanism)",
        given={"mechanism": "GSSAPI"},
    ),
    "requests do not wait for a token's owner": Tested(
        "Requests behind an unanswered login wait for it.",
        replaced(authentication, "_owner_is_unknown", never),
        "tests/unit/gateway/cluster/test_token_lookup.py::test_what_comes_behind_the_login_waits_for_the_owner",
        "METADATA not in keys(broker)",
    ),
    "certificates are not looked at": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        around(AcceptedTls, "__init__", _looks_at_no_certificate),
        "tests/unit/gateway/proxy/test_certificate_users.py::test_the_user_is_that_of_the_certificate",
        "users(gateway) == [user]",
        given={"subject": "/CN=joe", "rules": None, "user": "CN=joe"},
    ),
    "a login is required of nobody": Tested(
        "Only ApiVersions and SASL pass before a login that is required or may be.",
        around(Login, "__init__", _never_missing),
        f"{_CONVERSATION}test_nobody_acts_before_a_login_that_is_required",
        "nobody_acts_before_a_login()",
    ),
    "requests pass before the login": Tested(
        "Only ApiVersions and SASL pass before a login that is required or may be.",
        replaced(Session, "_decide_before_login", lambda *_: FORWARD),
        f"{_CONVERSATION}test_nobody_acts_before_a_login_that_is_required",
        "nobody_acts_before_a_login()",
    ),
    "no login where it was unknown": Tested(
        "Only ApiVersions and SASL pass before a login that is required or may be.",
        replaced(Session, "authentication_learnt", _learns_that_none_is_needed),
        f"{_CONVERSATION}test_nobody_acts_before_a_login_that_is_required",
        "nobody_acts_before_a_login()",
    ),
    "nothing waits for a login": Tested(
        "Requests behind an unanswered login wait for it.",
        _NO_LOGIN_UNDER_WAY,
        f"{_CONVERSATION}test_what_is_behind_a_login_is_of_who_logs_in",
        "what_is_behind_a_login_is_of_who_logs_in()",
    ),
    "a Produce needs no identity": Tested(
        "Requests behind an unanswered login wait for it.",
        replaced(PRODUCE_API, "needs_identity", False),
        f"{_CONVERSATION}test_what_is_behind_a_login_is_of_who_logs_in",
        "what_is_behind_a_login_is_of_who_logs_in()",
    ),
    "an acks=0 Produce ends with its client": Tested(
        "An acks=0 Produce held by a mute is forwarded even if its client has disconnected.",
        replaced(Session, "holds_unanswerable", False),
        f"{_BYTES}test_what_has_no_answer_outlives_its_client",
        "what_has_no_answer_outlives_its_client(scene)",
    ),
    "a Fetch does not wait": Tested(
        "With a byte rate the next Fetch waits for the size of the response before it.",
        replaced(FETCH_API, "waits_for_size", False),
        f"{_BYTES}test_the_next_fetch_leaves_when_the_answer_before_has_told_its_size",
        "len(pair.broker.sent()) == one",
    ),
    "the shared buffer overtakes": Tested(
        "Bytes reach a slow peer once and in order.",
        replaced(reading, "write_view", _overtaking),
        f"{_SLOW}",
        "received == sent",
        given={"seed": 18},
    ),
    "the shared buffer is not copied": Tested(
        "Bytes reach a slow peer once and in order.",
        replaced(reading, "write_view", _not_copying),
        f"{_SLOW}",
        "received == sent",
        given={"seed": 1},
    ),
    "TLS keeps no copy": Tested(
        "Bytes reach a slow peer once and in order.",
        replaced(TlsInbox, "keep_rest", lambda _self: 0),
        "tests/unit/gateway/proxy/test_tls_transport.py::test_what_waits_is_not_in_the_shared_buffer",
        "one.reader.got == bytes(200_000)",
    ),
    "answers that wait are dropped with their broker": Tested(
        "An answer that waits for its turn reaches its client, even if its broker leaves meanwhile.",
        replaced(BrokerChannel, "_pass_waiting_answers", lambda _: None),
        "tests/unit/gateway/proxy/test_turns.py::test_answers_that_wait_leave_when_the_broker_does",
        "pair.client.sent() == answer(1)",
    ),
    "passed on behind a mute": Tested(
        "No request passes a mute; all of them go on in order when it ends.",
        replaced(Session, "may_stream", _muted_or_not),
        f"{_PASSING}test_so_is_one_behind_a_mute",
        "left == 0",
    ),
    "closed for an entry that stays": Tested(
        "A refused batch that is overdue closes the connection at the next one above it, and its entry ends.",
        replaced(StickyRefusals, "end_overdue_entry", _entry_stays),
        "tests/unit/quota/test_sticky.py::test_a_batch_is_overdue_30_s_after_its_throttle",
        'sticky.count_entries("alice") == 0',
    ),
    "of many refused batches the first id is kept": Tested(
        "A batch that a broker answered with an error has not passed.",
        replaced(produce, "_noted", lambda batches, _: batches[0][0]),
        "tests/unit/gateway/proxy/test_not_taken.py::test_none_of_its_batches_counts_as_passed",
        "Position.PASSED not in looks_after(ids)",
        given={"batches": 100, "distinct": 2},
    ),
    "a request that adds to a transaction merely passes": Tested(
        "Every API that can create producer state is judged or withheld.",
        _merely_passes,
        "tests/unit/gateway/proxy/test_transaction_parts.py::test_new_ids_above_the_rate_are_sent_again_later",
        "script.send(part(api_key, version, 3, correlation_id=77)) is TAKEN",
        given={"api_key": ADD_PARTITIONS_TO_TXN, "version": 0},
    ),
    "quotas are set without a token": Tested(
        "The admin address answers to its own names only, and sets quotas with a token only.",
        replaced(access, "_has_token", always),
        "tests/unit/gateway/admin/test_admin_quotas.py::"
        "test_who_sets_quotas_on_a_loopback_address_shows_the_gateways_own_token",
        "nobody_sets_quotas_without_a_token()",
    ),
    "transactional ids have no ceiling": Tested(
        "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
        around(fail_open, "_bound_milli", _bound_of_produce_alone),
        "tests/unit/quota/test_fail_open.py::test_transactional_ids_have_a_ceiling_too_and_are_remembered",
        "[named(admission, hashed) for hashed in range(12)] == [True] * 10 + [False] * 2",
    ),
    "a refused transactional id is remembered": Tested(
        "New transactional ids have a rate of their own and are remembered for seven days.",
        around(ProducerIdQuota, "_decide_transactional_id", _refused_transactional_id_known),
        "tests/unit/quota/test_transactional_ids.py::test_a_fresh_one_at_each_start_is_refused",
        'passed(state, names(11, 49)) == 0, "none of them has become known by asking again"',
    ),
    "each id is given": _new_id(
        "A broker is asked for no more new ids than tokens can pay for.",
        replaced(ProducerIdQuota, "_decide_new_id", _gives_always),
        "what a crash loop burns",
        "burnt <= tokens + late",
    ),
    "the cluster's bucket is not asked": _new_id(
        "A broker is asked for no more new ids than tokens can pay for.",
        replaced(ProducerIdQuota, "_wait_ms", _forgets_the_cluster),
        "the cluster's bucket",
        "refused is not None",
    ),
    "a blocked user is slow": _new_id(
        "A rate of 0 blocks new ids, also under grace.",
        replaced(ProducerIdQuota, "_refuse_new_id", nothing),
        "blocked",
        "refused is not None",
    ),
    "many ids for one token": _new_id(
        "A broker is asked for no more new ids than tokens can pay for.",
        around(ProducerIdQuota, "_decide_new_id", _all_for_one_token),
        "one id for one token",
        "[asks(world) is None for _ in range(10)] == [True] + [False] * 9",
    ),
    "an id for each address": _new_id(
        "A new connection does not shed the throttle.",
        around(ProducerIdQuota, "decide", _once_per_address),
        "a new connection does not help",
        'asks(world, world.connect(address="10.0.0.2", client_id="other")) is not None',
    ),
    "a grace without a bound": _paid(
        "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
        replaced(ProducerIdQuota, "_grants_grace", _grace_without_bound),
        "grace",
        '[is_refused(state.decide(*question("alice", 1_000 + number), 0)) for number in range(12)] == [',
    ),
    "a use in the future": _paid(
        "A timestamp in the future counts as now.",
        replaced(Restorer, "_possible_ms", staticmethod(lambda used_ms, _now_ms: used_ms)),
        "the future is now",
        'not state.table.remembers("alice", 7, 3 * DAY_MS)',
    ),
    "the balance heard last": _paid(
        "A restored state remembers its ids and balances.",
        around(Restorer, "restore_tokens", _any_balance),
        "the newest balance counts",
        'state.status("alice", 0).tokens == 20',
    ),
    "a grace forgets what another let in": Tested(
        "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
        around(ProducerIdQuota, "begin_grace", _grace_forgets_the_others),
        "tests/unit/gateway/state/test_cold_start.py::test_gateways_that_start_at_the_same_time_have_one_bound",
        'starts_beside_another()["grace"] == 10 * RATE - 30',
    ),
    "a grace ends by the wall clock": Tested(
        "A grace that has ended stays ended if the wall clock is set back.",
        _ends_by_the_wall_clock,
        "tests/unit/gateway/state/test_cold_start.py::test_a_wall_clock_that_is_set_back_begins_no_grace_again",
        "a_wall_clock_begins_no_grace_again(monkeypatch)",
    ),
    "the later clock wins": Tested(
        "Quota changes apply in the order of the topic.",
        around(ChangeLog, "_apply_change", _later_clock_wins),
        "tests/unit/gateway/quotas/test_change_log.py::test_all_end_with_the_same",
        "disagreements(with_topic, rounds=1_500) == 0",
    ),
    "an own change stays on top": Tested(
        "Quota changes apply in the order of the topic.",
        replaced(ChangeLog, "_settle", nothing),
        "tests/unit/gateway/quotas/test_change_log.py::test_all_end_with_the_same",
        "disagreements(with_topic, rounds=1_500) == 0",
    ),
    "a length of two bytes": _misread("produce", "(length & 0x7F) | high << 7", "length | high << 7"),
    "a length of three bytes": _misread("produce", "if high < 0x80:", "if high < 0x100:"),
    "partitions of three bytes": _misread(
        "produce",
        "partitions, p = read_uvarint(buf, p - 1)",
        "partitions, p = (partitions & 0x7F) | buf[p] << 7, p + 1",
    ),
    "another length of three bytes": _misread(
        "produce",
        "length, p = read_uvarint(buf, p - 1)",
        "length, p = (length & 0x7F) | (buf[p] & 0x7F) << 7, p + 1",
    ),
    "a repeated length of two bytes": _misread(
        "repeated_produce", "length & 0x7F | (high & 0x7F) << 7", "length & 0x7F | (high & 0x3F) << 7"
    ),
    "another batch": _looks_at_less("or self.batches:", "or False:"),
    "another acks": _looks_at_less("if part[at] if is_whole else frame[p]:", "if False:"),
    "tags of a topic": _looks_at_less(
        "if p >= stop or (part[p] if is_whole else frame[p]):", "if p >= stop:"
    ),
    "tags of a request": _looks_at_less(
        "if p != stop or (part[p] if is_whole else frame[p]):", "if p != stop:"
    ),
    "a gateway topic repeats": _looks_at_less(
        "return 0 if self.topics[number] in self._forbidden else q", "return q"
    ),
    "another topic": _looks_at_less(
        "if written != self._written_topics[number]:", "if not self._written_topics[number]:"
    ),
}

EQUIVALENT: Final[dict[str, str]] = {
    "entry_ends_at_epoch": "an epoch begins at 0: that is at or below all batches refused before, and lifts them",
}
"""Rules of the table of refusals without which the same batches pass, a refusal of 100 ms earlier or later."""
