"""Rules of refusal, each broken in one way: what may pass before what, over caches, gateways and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from pidgate.gateway.proxy.apis.produce import ProduceApi
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import ProducerBatch, Session
from pidgate.quota.held_beginnings import HeldBeginnings
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.sticky_entries import RefusedId
from tests.simulator.breaking import Breach, Break, Mutant, always, around, never, nothing, replaced
from tests.simulator.every import SmallWorld
from tests.simulator.themes import Theme


def _cache_first(_: Admission, session: Session, batches: Iterable[Any], key: int, now_ms: int) -> bool:
    return all(session.admitted.get(batch[0]) == key for batch in batches)


def _hot_path_first(_: Admission, session: Session, producer_id: int, *rest: object) -> bool:
    return producer_id in session.admitted


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
                    record.goes_over(entry.epoch, *key, entry.connection_id)
                    self.sticky._end(user, producer_id, record, key)

    return set_quotas


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
            self._room.ids -= 1
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


def _refusal(rule: str, breaks: Break, seed: int, theme: Theme = Theme.REFUSALS) -> Mutant:
    return Mutant(rule, breaks, Breach.OVERTAKEN, theme, seed)


def _sticky(rule: str, name: str, by: Callable[..., Any], seed: int, theme: Theme = Theme.REFUSALS) -> Mutant:
    return _refusal(rule, replaced(StickyRefusals, name, by), seed, theme)


def _noted(rule: str, breaks: Break, seed: int) -> Mutant:
    return _refusal(rule, breaks, seed, Theme.HELD)


_SENT: Final = ("send", "java-1", 0, 1)
_NOTED_FIRST: Final = "Sticky first: A batch that begins a partition"
_OVER_NOTES: Final = "Sticky first: no cache passes over a note"

REFUSAL_MUTANTS: Final[dict[str, Mutant]] = {
    "cache before sticky": _refusal(
        "Sticky first: No cache", replaced(Admission, "_known", _cache_first), 11
    ),
    "the hot path before sticky": _refusal(
        "Sticky first: the hot path", replaced(Admission, "knows", _hot_path_first), 11
    ),
    "no rule for first sight above 0": _refusal(
        "Refusals: A first sight above 0 is refused once",
        replaced(Admission, "_first_sight_above_0", never),
        13,
    ),
    "lifted by an exemption": _refusal("One store: an exemption", _lifted(_exempts_somebody), 8),
    "lifted by observing": _refusal("One store: observing", _lifted(_is_observed), 49),
    "lifted by a raised rate": Mutant(
        "One store: a raised rate",
        around(Admission, "set_quotas", _lifted_by_more),
        Breach.OVERTAKEN,
        acts=(_SENT, ("rate", 20), ("wait", 1_000), ("send", "java-1", 1, 1), _SENT),
        small=SmallWorld("java"),
    ),
    "entries expire by age": _refusal("Refusals: No entry ends by age", _expiring, 40),
    "an entry is in nobody's way": _sticky(
        "Refusals: What is above a refused batch is refused too", "are_next", always, 11
    ),
    "lifted per id, not per partition": _sticky(
        "Refusals: One partition's batch lifts no other's", "entries_lifted_by", _all_lifted, 11
    ),
    "lifted by a batch above": _sticky(
        "Refusals: What is above a refused batch is refused too", "is_above", never, 1, Theme.RESTLESS
    ),
    "an entry does not move on": _sticky("Refusals: An entry moves on", "moves_on", never, 15),
    "the latest refusal stands": _refusal(
        "Refusals: The lowest refused batch stands", around(StickyRefusals, "refused", _latest_stands), 15
    ),
    "passed over any connection": _sticky(
        "Refusals: Passed means over this connection", "passed_before", _any_connection, 25
    ),
    "closed for an entry that stays": Mutant(
        "Refusals: Its entry ends with that",
        replaced(StickyRefusals, "too_many_further", _entry_stays),
        Breach.CLOSED_AGAIN,
        Theme.REFUSALS,
        10,
    ),
    "nobody notes a beginning": _noted(_NOTED_FIRST, replaced(HeldBeginnings, "note", nothing), 3),
    "what is behind a held request is not noted": _noted(
        _NOTED_FIRST, around(ProduceApi, "held", _first_held_only), 1
    ),
    "a cache answers in spite of a note": _noted(_OVER_NOTES, replaced(Admission, "_known", _cache_first), 3),
    "the hot path answers in spite of a note": _noted(
        _OVER_NOTES, replaced(HeldBeginnings, "is_any_held", never), 3
    ),
    "what a broker did not take has passed": _noted(
        "Sticky first: What a broker answered with an error has not passed",
        replaced(StickyRefusals, "not_taken", nothing),
        15,
    ),
    "refusals elsewhere are not heard": Mutant(
        "Refusals: What others refuse is watched here",
        replaced(StickyRefusals, "refused_elsewhere", nothing),
        Breach.OVERTAKEN,
        acts=(_SENT, ("mode", None, False), ("lead", 0, 2), _SENT),
    ),
}
