"""Rules of the documents that guard against loss or evasion, each broken in one way, and the schedule that notices it.

`MUTANTS` by name: which Invariant of docs/architecture.md the rule belongs to, how it is broken, and the theme and
seed of a schedule that fails then. `NOT_HERE`: why an Invariant has no mutant here, and what holds it instead.
`NOT_HARMFUL_HERE`: broken rules of refusal that no schedule here can notice, why, and what does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from pidgate.gateway.proxy import client_channel
from pidgate.gateway.proxy.apis.passing_produce import has_passed
from pidgate.gateway.proxy.apis.produce import ProduceApi
from pidgate.gateway.proxy.buffers import BudgetShare, Purpose
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_state import OPEN
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import InFlightRequests
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.admission import Admission
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.held_beginnings import HeldBeginnings
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.state import Answer, Question
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.sticky_entries import RefusedId
from pidgate.quota.verdicts import ProducerBatch, Session
from tests.simulator.every import BESIDE_EACH, Act
from tests.simulator.schedule import Schedule
from tests.simulator.themes import Theme, aimed

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule, broken. `rule`: the paragraph that states it. `seed`: the first of its theme that notices.

    No theme: what happens in the small world of sidecars that notices it.
    """

    rule: str
    breaks: Break
    theme: Theme | None = None
    seed: int = 0
    acts: tuple[Act, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that notices it."""
        return BESIDE_EACH.schedule(self.acts) if self.theme is None else aimed(self.seed, self.theme)


def _replaced(owner: type, name: str, by: Callable[..., Any]) -> Break:
    return lambda patch: patch.setattr(owner, name, by)


def _around(owner: type, name: str, make: Callable[[Any], Callable[..., Any]]) -> Break:
    """Replace a method by one that is made of what was there."""
    return lambda patch: patch.setattr(owner, name, make(getattr(owner, name)))


def _nothing(*_: object, **__: object) -> None:
    """Left undone."""


async def _nothing_later(*_: object) -> None:
    """Left undone."""


def _never(*_: object, **__: object) -> bool:
    return False


def _always(*_: object, **__: object) -> bool:
    return True


# ---- order, identity, addresses ------------------------------------------------------------------------


def _out_of_turn(self: InFlightRequests, answer: bytes) -> None:
    self.out.append(answer)


def _by_connection(before: Any) -> Any:
    def __init__(self: Conversation, admission: Admission, session: Session, *args: Any, **more: Any) -> None:
        session.user = f"{session.user}/{session.connection_id}"
        before(self, admission, session, *args, **more)

    return __init__


def _as_it_is(_: object, node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


# ---- whole frames --------------------------------------------------------------------------------------


def _without_looking(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    return self.intake(now_ms) is OPEN and self.repeated.begins(beginning, request_bytes)


def _known_anywhere(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    begins = _without_looking(self, beginning, request_bytes, now_ms)
    return begins and self.repeated.producer_id in self.session.admitted


def _happens_at_its_beginning(patch: pytest.MonkeyPatch) -> None:
    before = Conversation.may_pass

    def may_pass(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
        passes = before(self, beginning, request_bytes, now_ms)
        if passes:
            has_passed(self, request_bytes, now_ms)
        return passes

    patch.setattr(Conversation, "may_pass", may_pass)
    patch.setattr(client_channel, "has_passed", _nothing)


# ---- refusals ------------------------------------------------------------------------------------------


def _cache_first(_: Admission, session: Session, batches: Iterable[Any], key: int, now_ms: int) -> bool:
    return all(session.admitted.get(batch[0]) == key for batch in batches)


def _hot_path_first(_: Admission, session: Session, producer_id: int, *rest: object) -> bool:
    return producer_id in session.admitted


def _lifted(breaks: Callable[[Quotas], bool]) -> Callable[[Any], Any]:
    def make(before: Any) -> Any:
        def set_quotas(self: Admission, quotas: Quotas, now_ms: int) -> None:
            before(self, quotas, now_ms)
            if breaks(quotas):
                self.sticky = StickyRefusals(quotas.producer_ids.sticky_entries)

        return set_quotas

    return make


def _is_observed(quotas: Quotas) -> bool:
    return quotas.mode is Mode.OBSERVE


def _exempts_somebody(quotas: Quotas) -> bool:
    return any(user.exempt for user in quotas.users.values())


def _expiring(patch: pytest.MonkeyPatch) -> None:
    before = StickyRefusals.refused_id

    def is_over(_: StickyRefusals, record: RefusedId, now_ms: int) -> bool:
        return now_ms - record.refused_at_ms >= 1_000

    def refused_id(self: StickyRefusals, user: str, producer_id: int, now_ms: int) -> RefusedId | None:
        record = self.watched.get(user, {}).get(producer_id)
        if record is not None and is_over(self, record, now_ms):
            for key in list(record.entries):
                self._end(user, producer_id, record, key)
            del self.watched[user][producer_id]
        return before(self, user, producer_id, now_ms)

    patch.setattr(StickyRefusals, "watch_is_over", is_over)
    patch.setattr(StickyRefusals, "refused_id", refused_id)


def _all_lifted(_: StickyRefusals, record: RefusedId, key: Any) -> list[Any]:
    return list(record.entries)


def _latest_stands(before: Any) -> Any:
    def refused(
        self: StickyRefusals, user: str, batch: ProducerBatch, connection_id: int, now_ms: int
    ) -> None:
        record = self.watched.get(user, {}).get(batch[0])
        key = (batch[3], batch[4])
        if record is not None and (found := self._key_in(record, *key)) in record.entries:
            self._end(user, batch[0], record, found)
        before(self, user, batch, connection_id, now_ms)

    return refused


def _any_connection(
    self: StickyRefusals, record: RefusedId, epoch: int, topic: bytes, partition: int, _: int
) -> bool:
    return record.went_over(epoch, self.topics.canonical(topic), partition) is not None


def _entry_stays(self: StickyRefusals, user: str, batch: ProducerBatch) -> bool:
    record = self.watched[user][batch[0]]
    entry = record.entries[self._key_in(record, batch[3], batch[4])]
    entry.further_refusals += 1
    return entry.further_refusals > 5


def _first_held_only(before: Any) -> Any:
    def held(api: ProduceApi, context: Any, *rest: Any) -> None:
        if not context.held:
            before(api, context, *rest)

    return held


# ---- memory --------------------------------------------------------------------------------------------


def _never_given_back(before: Any) -> Any:
    def hold(self: BudgetShare, purpose: Purpose, amount_bytes: int) -> None:
        if amount_bytes:
            before(self, purpose, amount_bytes)

    return hold


# ---- the state -----------------------------------------------------------------------------------------


def _inserted_first(before: Any) -> Any:
    def decide(self: ProducerIdQuota, question: Question, now_ms: int) -> Answer:
        answer: Answer = before(self, question, now_ms)
        if answer.refused:
            for asked in question.ids:
                self.insert_uncharged(question.user, asked.producer_id, now_ms)
        return answer

    return decide


def _unrestored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuotaStateManager, "_restore_from_directory", _nothing_later)
    patch.setattr(QuotaStateManager, "_restore_from_topic", _nothing_later)


def _sticky(name: str, by: Callable[..., Any], theme: Theme, seed: int) -> Mutant:
    return Mutant("Sticky first", _replaced(StickyRefusals, name, by), theme, seed)


def _noted(owner: type, name: str, by: Callable[..., Any], seed: int) -> Mutant:
    return Mutant("Sticky first", _replaced(owner, name, by), Theme.WORKERS, seed)


def _passed_on(breaks: Break, seed: int) -> Mutant:
    return Mutant("Whole frames", breaks, Theme.PASSING, seed)


MUTANTS: Final[dict[str, Mutant]] = {
    "answers of our own do not wait for their turn": Mutant(
        "Order", _replaced(InFlightRequests, "respond", _out_of_turn), Theme.REFUSALS, 1
    ),
    "each connection has a quota of its own": Mutant(
        "Identity first", _around(Conversation, "__init__", _by_connection), Theme.REFUSALS, 4
    ),
    "cache before sticky": Mutant(
        "Sticky first", _replaced(Admission, "_known", _cache_first), Theme.REFUSALS, 11
    ),
    "the hot path before sticky": Mutant(
        "Sticky first", _replaced(Admission, "knows", _hot_path_first), Theme.REFUSALS, 11
    ),
    "no rule for first sight above 0": Mutant(
        "Sticky first", _replaced(Admission, "_first_sight_above_0", _never), Theme.REFUSALS, 13
    ),
    "lifted by an exemption": Mutant(
        "One store", _around(Admission, "set_quotas", _lifted(_exempts_somebody)), Theme.REFUSALS, 8
    ),
    "lifted by observing": Mutant(
        "One store", _around(Admission, "set_quotas", _lifted(_is_observed)), Theme.REFUSALS, 13
    ),
    "entries expire by age": Mutant("Sticky first", _expiring, Theme.REFUSALS, 18),
    "an entry is in nobody's way": _sticky("are_next", _always, Theme.REFUSALS, 11),
    "lifted per id, not per partition": _sticky("entries_lifted_by", _all_lifted, Theme.REFUSALS, 11),
    "lifted by a batch above": _sticky("is_above", _never, Theme.RESTLESS, 1),
    "an entry does not move on": _sticky("moves_on", _never, Theme.REFUSALS, 15),
    "the latest refusal stands": Mutant(
        "Sticky first", _around(StickyRefusals, "refused", _latest_stands), Theme.REFUSALS, 15
    ),
    "passed over any connection": _sticky("passed_before", _any_connection, Theme.REFUSALS, 25),
    "closed for an entry that stays": _sticky("too_many_further", _entry_stays, Theme.REFUSALS, 10),
    "nobody notes a beginning": _noted(HeldBeginnings, "note", _nothing, 19),
    "a cache answers in spite of a note": _noted(Admission, "_known", _cache_first, 6),
    "the hot path answers in spite of a note": _noted(HeldBeginnings, "has_any", _never, 22),
    "what is behind a held request is not noted": Mutant(
        "Sticky first", _around(ProduceApi, "held", _first_held_only), Theme.WORKERS, 50
    ),
    "what a broker did not take has passed": _noted(StickyRefusals, "not_taken", _nothing, 11),
    "real addresses pass": Mutant(
        "Addresses", _replaced(ConnectionContext, "translate", _as_it_is), Theme.REFUSALS, 1
    ),
    "any large request is passed on": _passed_on(_replaced(Conversation, "may_pass", _without_looking), 18),
    "passed on in spite of a refusal": _passed_on(_replaced(Conversation, "may_pass", _known_anywhere), 18),
    "it happens at its beginning": _passed_on(_happens_at_its_beginning, 24),
    "memory is not given back": Mutant(
        "Memory", _around(BudgetShare, "hold", _never_given_back), Theme.REFUSALS, 1
    ),
    "no ceiling of what fails open": Mutant(
        "Fail open", _replaced(FailOpen, "_admits", _always), Theme.OUTAGES, 4
    ),
    "inserted before charged": Mutant(
        "One state", _around(ProducerIdQuota, "decide", _inserted_first), Theme.REFUSALS, 7
    ),
    "admissions elsewhere are not charged": Mutant(
        "One state", _replaced(ProducerIdQuota, "admitted_elsewhere", _never), Theme.FLEET, 1
    ),
    "refusals elsewhere are not heard": Mutant(
        "Sticky first",
        _replaced(StickyRefusals, "refused_elsewhere", _nothing),
        acts=(("send", "java-1", 0, 1), ("mode", None, False), ("lead", 0, 2), ("send", "java-1", 0, 1)),
    ),
    "nothing is restored": Mutant("Restored, then enforced", _unrestored, Theme.OUTAGES, 4),
}

NOT_HERE: Final[dict[str, str]] = {
    "Bytes": "every frame of the clients here is understood; tests/fuzz and tests/unit/protocol hold it",
    "Versions": "the clients here ask for what they are offered; tests/unit/protocol/test_versions.py",
    "Work per turn": "virtual time counts no work; tests/unit/protocol counts steps",
    "Blame": "hostile clients are a theme, beside good ones; what each breach leads to: tests/hostile",
    "Bytes are never refused": "byte rates delay, and nothing is lost by that here",
    "Events are in nobody's way": "a topic that is cut is a step of the schedules, and everybody has to be served",
}

NOT_HARMFUL_HERE: Final[dict[str, tuple[str, str]]] = {
    "an early return extends its deadline": (
        "every client here backs off for longer than the shortest throttle",
        "tests/unit/quota/test_admission.py::test_a_lower_batch_may_come_first_after_all",
    ),
    "new ids are not watched": (
        "the topic brings a refusal to the other gateways sooner than a client can follow its partition there",
        "tests/unit/quota/test_admission.py::"
        "test_a_young_id_above_0_on_an_unknown_partition_may_have_been_refused_elsewhere",
    ),
}
"""Rules of refusal that no schedule here can notice the breach of: why, and the test that does."""

EQUIVALENT: Final[dict[str, str]] = {
    "entry_ends_at_epoch": "an epoch begins at 0: that is at or below whatever was refused before, and lifts it",
}
"""Rules of the table of refusals without which the same batches pass, a refusal of 100 ms earlier or later."""
