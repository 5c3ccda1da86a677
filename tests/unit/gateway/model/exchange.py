"""What processes of a model tell each other over an events topic: decisions, some time after they were made.

What a decision means there is what `EventApplier` makes of its event: an admission goes into the state, a refused id is
watched. A topic that is cut keeps what it is given; only who restarts loses what has not left yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pidgate.quota.admission import Admission
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Decision


@dataclass(slots=True)
class Told:
    """A decision on its way, or told for long."""

    process: int
    made_ms: int
    decision: Decision


@dataclass(slots=True)
class Exchange:
    """`delay_ms`: from a decision to its effect in the others."""

    delay_ms: int
    is_cut: bool = False
    under_way: list[Told] = field(default_factory=list)
    history: list[Told] = field(default_factory=list)

    def tell(self, process: int, decisions: Iterable[Decision], now_ms: int) -> None:
        self.under_way += [Told(process, now_ms, decision) for decision in decisions]

    def next_ms(self) -> int | None:
        """When something arrives next."""
        if self.is_cut or not self.under_way:
            return None
        return self.under_way[0].made_ms + self.delay_ms

    def deliver(self, processes: Sequence[Admission], now_ms: int, *, at_once: bool = False) -> None:
        """What is due by now; `at_once`: all that is on its way."""
        while not self.is_cut and self.under_way:
            told = self.under_way[0]
            if not at_once and told.made_ms + self.delay_ms > now_ms:
                return
            del self.under_way[0]
            self.history.append(told)
            for number, process in enumerate(processes):
                if number != told.process:
                    _absorb(process, told.decision, now_ms)

    def restart(self, number: int, process: Admission, now_ms: int) -> None:
        """A new process in the place of this one: what had not left is lost, the rest is its history, too."""
        self.under_way = [told for told in self.under_way if told.process != number]
        state = _state_of(process)
        for told in [] if self.is_cut else self.history:
            if told.decision.admitted:
                state.restorer.restore_id(told.decision.user, told.decision.producer_id, told.made_ms, now_ms)
            elif now_ms - told.made_ms < WATCH_MS:
                process.sticky.refused_elsewhere(told.decision.user, told.decision.producer_id, now_ms)


def _absorb(process: Admission, decision: Decision, now_ms: int) -> None:
    if decision.admitted:
        state = _state_of(process)
        state.admitted_elsewhere(decision.user, decision.producer_id, now_ms, decision.reason)
    else:
        process.sticky.refused_elsewhere(decision.user, decision.producer_id, now_ms)


def _state_of(process: Admission) -> ProducerIdQuota:
    state = process.access.state
    assert isinstance(state, ProducerIdQuota)
    return state


class Teller:
    """What a conversation tells its recorder of, as far as others are to know."""

    is_introduced = True

    def __init__(self, exchange: Exchange, process: int) -> None:
        self._exchange, self._process = exchange, process
        self.requests = 0

    def decided(
        self, decisions: Iterable[Decision], _buf: object, _start: int, _end: int, now_ms: int
    ) -> None:
        self._exchange.tell(self._process, decisions, now_ms)

    def forwarded(self, *_what: object) -> None:
        """Usage is of no account here."""

    def repeated(self, *_what: object) -> None:
        """Nor here."""
