"""The rules of refusal, each broken in one way. The model must notice every one of them.

A mutant is an `AdmissionFactory`. It overrides one rule; the code under test has no hooks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from pidgate.quota.admission import Admission
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.state import Answer, Question
from pidgate.quota.sticky import Look, StickyRefusals
from pidgate.quota.sticky_entries import RefusedId
from pidgate.quota.verdicts import ProducerBatch, Refuse, Session
from tests.unit.gateway.model.world import AdmissionFactory, seed

PartitionKey = tuple[bytes, int]


class CacheBeforeSticky(Admission):
    """A connection's cache of admitted ids is asked first."""

    def _known(
        self, session: Session, batches: Collection[ProducerBatch], slice_key: int, now_ms: int
    ) -> bool:
        return all(session.admitted.get(batch[0]) == slice_key for batch in batches)


class HotPathBeforeSticky(Admission):
    """A request that repeats the one before it passes when its id was admitted, watched or not."""

    def knows(
        self,
        session: Session,
        producer_id: int,
        epoch: int,
        topic: bytes,
        partitions: list[int],
        transactional: bool,
        now_ms: int,
    ) -> bool:
        return producer_id in session.admitted


class NoFirstSight(Admission):
    """What arrives above 0 on an unknown partition is taken as it comes."""

    def _first_sight_above_0(self, batch: ProducerBatch, look: Look) -> bool:
        return False


class ModeLifts(Admission):
    """Switching to observe forgives everything."""

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        super().set_quotas(quotas, now_ms)
        if quotas.mode is Mode.OBSERVE:
            self.sticky = StickyRefusals(quotas.producer_ids.sticky_entries)


class ExemptionLifts(Admission):
    """An exemption forgives everything."""

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        super().set_quotas(quotas, now_ms)
        if any(user.exempt for user in quotas.users.values()):
            self.sticky = StickyRefusals(quotas.producer_ids.sticky_entries)


class ExpiresByAge(StickyRefusals):
    """A refusal is forgotten after a second."""

    def refused_id(self, user: str, producer_id: int, now_ms: int) -> RefusedId | None:
        record = super().refused_id(user, producer_id, now_ms)
        if record is None or now_ms - record.refused_at_ms < 1_000:
            return record
        for key in list(record.entries):
            self._end(user, producer_id, record, key)
        del self.watched[user][producer_id]
        return None


class ClearsPerId(StickyRefusals):
    """A forwarded batch lifts the refusals of all partitions of its id."""

    def entries_lifted_by(self, record: RefusedId, key: PartitionKey) -> list[PartitionKey]:
        return list(record.entries)


class AboveLifts(StickyRefusals):
    """Any later batch lifts a refusal, not only one at or below it."""

    def is_above(self, base_sequence: int, refused: int) -> bool:
        return False


class LatestRefusalStands(StickyRefusals):
    """The latest refusal replaces the lowest."""

    def refused(self, user: str, batch: ProducerBatch, connection_id: int, now_ms: int) -> None:
        record = self.watched.get(user, {}).get(batch[0])
        key = (batch[3], batch[4])
        if record is not None and (found := self._key_in(record, *key)) in record.entries:
            self._end(user, batch[0], record, found)
        super().refused(user, batch, connection_id, now_ms)


class AnyConnectionPassed(StickyRefusals):
    """What went to another broker counts as passed."""

    def passed_before(
        self, record: RefusedId, epoch: int, topic: bytes, partition: int, connection_id: int
    ) -> bool:
        return record.went_over(epoch, self.topics.canonical(topic), partition) is not None


class NewIdsUnwatched(StickyRefusals):
    """Only ids that were refused here are watched."""

    def admitted(self, user: str, producer_id: int, now_ms: int) -> None:
        pass


class EntryStaysAfterClose(StickyRefusals):
    """A connection is closed for an entry of another one, which stays."""

    def too_many_further(self, user: str, batch: ProducerBatch) -> bool:
        record = self.watched[user][batch[0]]
        entry = record.entries[self._key_in(record, batch[3], batch[4])]
        entry.further_refusals += 1
        return entry.further_refusals > 5


class EarlyReturnExtends(Admission):
    """Coming back before the deadline puts it off."""

    def _refused_by_state(self, *args: object) -> object:  # type: ignore[override]
        verdict = super()._refused_by_state(*args)  # type: ignore[arg-type]
        if isinstance(verdict, Refuse):
            session, now_ms = args[0], args[-1]
            assert isinstance(session, Session)
            assert isinstance(now_ms, int)
            self.sticky.throttled(session.user, verdict.producer_id, now_ms + verdict.throttle_time_ms)
        return verdict


class InsertsBeforeCharging(ProducerIdQuota):
    """As the KIP's text has it: a refused id is remembered, and its retry passes free of charge."""

    def decide(self, question: Question, now_ms: int) -> Answer:
        answer = super().decide(question, now_ms)
        if answer.refused:
            for asked in question.ids:
                self.insert_uncharged(question.user, asked.producer_id, now_ms)
        return answer


def _with(
    admission: type[Admission] = Admission,
    sticky: type[StickyRefusals] = StickyRefusals,
    state: type[ProducerIdQuota] = ProducerIdQuota,
) -> AdmissionFactory:
    def made(quotas: Quotas, now_ms: int) -> Admission:
        return admission(
            quotas,
            seed,
            now_ms,
            state=state(quotas, seed, now_ms),
            sticky=sticky(quotas.producer_ids.sticky_entries),
        )

    return made


MUTANTS: Final[dict[str, Callable[[Quotas, int], Admission]]] = {
    "cache before sticky": _with(CacheBeforeSticky),
    "the hot path before sticky": _with(HotPathBeforeSticky),
    "entries expire by age": _with(sticky=ExpiresByAge),
    "lifted per id, not per partition": _with(sticky=ClearsPerId),
    "no rule for first sight above 0": _with(NoFirstSight),
    "lifted by observing": _with(ModeLifts),
    "lifted by an exemption": _with(ExemptionLifts),
    "lifted by a batch above": _with(sticky=AboveLifts),
    "the latest refusal stands": _with(sticky=LatestRefusalStands),
    "passed over any connection": _with(sticky=AnyConnectionPassed),
    "closed for an entry that stays": _with(sticky=EntryStaysAfterClose),
    "new ids are not watched": _with(sticky=NewIdsUnwatched),
    "an early return extends its deadline": _with(EarlyReturnExtends),
    "inserted before charged": _with(state=InsertsBeforeCharging),
}
