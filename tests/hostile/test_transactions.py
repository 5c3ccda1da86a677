"""What is let pass in transactions, where they are only observed, is no way around the quota."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.attack import ONE_RECORD, Attack, Case, Target, cases
from tests.hostile.site import Site, carry_out
from tests.support.frames import record_batch

MANY = 20


def _known_by_a_transaction_nobody_began(target: Target) -> Iterator[bytes]:
    """Use each id first with a transactional id, then without, in the same form of request and in a plain one."""
    ids = [target.new_id() for _ in range(MANY)]
    for producer_id in ids:
        yield _produce(target, producer_id, transactional_id="nobody", transactional=True)
    for producer_id in ids:
        yield _produce(target, producer_id, transactional_id="nobody")
        yield _produce(target, producer_id)


def _produce(
    target: Target, producer_id: int, *, transactional_id: str | None = None, transactional: bool = False
) -> bytes:
    batch = record_batch(producer_id, records=ONE_RECORD, transactional=transactional)
    return target.produce_of([(target.topic, [(0, batch)])], version=9, transactional_id=transactional_id)


ATTACKS = [
    Attack(
        name="ids made known by a transaction that nobody began",
        frames=_known_by_a_transaction_nobody_began,
    ),
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)
