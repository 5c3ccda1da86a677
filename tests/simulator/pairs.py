"""A known id may use any partition: its new pairs are charged, and new ids of its user wait for the debt.

Each run of a gateway charges what it forwards, in a bucket of its own for each user (docs/how-to/fuse.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.simulator import admissions, observed, quota_bound, wiretap
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.loop import BEGAN_S

if TYPE_CHECKING:
    from tests.simulator.world import World

CLOCK_S: Final = 0.002
"""Gateways count whole milliseconds."""


@dataclass(slots=True)
class _Bucket:
    """At most so many tokens as the gateway's."""

    per_s: float
    capacity: float
    tokens: float
    at_s: float

    def look(self, at_s: float) -> float:
        self.tokens = min(self.capacity, self.tokens + (at_s - self.at_s) * self.per_s)
        self.at_s = at_s
        return self.tokens

    def charge(self, at_s: float) -> None:
        self.tokens = max(-max(1.0, self.capacity), self.look(at_s) - 1.0)


def check(world: World) -> None:
    """Raise ModelViolation."""
    if not world.fleet.gateways:
        return
    _known_ids_pass(world)
    if world.setup.quotas.states_rate is not None:
        _debts_are_waited_for(world, world.setup.quotas.states_rate)


def _known_ids_pass(world: World) -> None:
    """An id that has passed, and was never refused, is not refused where it begins with other partitions."""
    passed_s: dict[tuple[wiretap.Run, int], float] = {}
    for frame in wiretap.written_to_brokers(world):
        for _, numbers in wiretap.batches_in(frame):
            passed_s.setdefault((wiretap.run_of(world, frame), numbers.producer_id), frame.at_s)
    refused: set[int] = set()
    for one in wiretap.produce_answers(world):
        if not one.is_refusal:
            continue
        batches, run = wiretap.batches_in(one.asked), wiretap.run_of(world, one.asked)
        ids = {numbers.producer_id for _, numbers in batches}
        is_known = all(passed_s.get((run, one_id), one.asked.at_s) < one.asked.at_s for one_id in ids)
        if is_known and not ids & refused and not any(numbers.base_sequence for _, numbers in batches):
            partitions = sorted(name.partition for name, _ in batches)
            raise ModelViolation(
                f"{one.asked.process} refused the known id {min(ids)} at {one.answer.at_s - BEGAN_S:.3f} "
                f"in partitions {partitions}"
            )
        refused |= ids


def _debts_are_waited_for(world: World, rate: int) -> None:
    """No new id passes while its user owes tokens for pairs."""
    quotas = world.setup.quotas
    per_s, capacity = rate * 1_000 / quotas.window_ms, rate * quotas.burst
    paid = {
        (user, one.at_s, one.what)
        for user, admitted in quota_bound.counted(world, admissions.producer_ids(world)).items()
        for one in admitted
    }
    free = quota_bound.bound_of(world, []).free
    buckets: dict[tuple[wiretap.Run, str], _Bucket] = {}
    known: set[tuple[wiretap.Run, str, int, int]] = set()
    for frame, is_hostile in wiretap.all_written_to_brokers(world):
        run = wiretap.run_of(world, frame)
        used = admissions.used(world, frame, is_hostile)
        # A lane tells of partitions a second later; a hostile client's are not read.
        is_exact = not is_hostile and world.setup.lend_after is None
        parts = [name.partition for name, _ in wiretap.batches_in(frame)] if is_exact else [0] * len(used)
        for user, producer_id, _ in used:
            bucket = buckets.setdefault((run, user), _Bucket(per_s, capacity, capacity, frame.at_s))
            owed, admission = -bucket.look(frame.at_s), (user, frame.at_s, producer_id)
            if owed > CLOCK_S * per_s and admission in paid:
                raise ModelViolation(
                    f"the new id {producer_id} of {user} passed {run[0]} at {frame.at_s - BEGAN_S:.3f}, with "
                    f"{owed:.2f} producer states to be paid"
                )
            paid.discard(admission)
        for (user, producer_id, _), partition in zip(used, parts, strict=True):
            pair = run, user, producer_id, partition
            if pair in known:
                continue
            known.add(pair)
            without = [
                *observed.spans(world, user),
                *(span for whose, span in free if whose == frame.process),
            ]
            if not any(since_s <= frame.at_s <= until_s for since_s, until_s in without):
                buckets[run, user].charge(frame.at_s)
