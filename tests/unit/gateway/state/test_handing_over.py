"""The hand-over ends, however many new ids come meanwhile, and no callback of it is long."""

from __future__ import annotations

import asyncio

import pytest

from pidgate.gateway.state.handing_over import PORTION, hand_over
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.questions import question

NOTED = 3_000
MOST_TURNS = 60


class Counting(ProducerIdQuota):
    """A state that knows how many ids it took over since it was last asked."""

    taken = 0

    def admitted_meanwhile(self, *args: object, **more: object) -> bool:
        self.taken += 1
        return super().admitted_meanwhile(*args, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("a_turn", [0, 150, PORTION, 450, 2_000])
def test_a_flood_of_new_ids_does_not_prolong_restoring(a_turn: int) -> None:
    quotas = Quotas(Mode.ENFORCE, ProducerIdSettings(), UserQuota.per_window(5))
    state = Counting(quotas, lambda: 7, 0, is_restored=False)
    turns, is_flooding = 0, True

    def come(first: int, number: int) -> None:
        for producer_id in range(first, first + number):
            state.decide(*question("mallory", producer_id), 0)

    async def run() -> None:
        nonlocal is_flooding
        loop = asyncio.get_running_loop()

        def flood() -> None:
            nonlocal turns
            if not is_flooding or turns > MOST_TURNS:
                return
            come(NOTED + turns * a_turn, a_turn)
            turns += 1
            loop.call_soon(flood)

        come(0, NOTED)
        flood()
        await hand_over(state, lambda: 0)
        is_flooding = False

    asyncio.run(run())
    assert turns <= MOST_TURNS
    assert state.noted.left <= PORTION
    assert state.taken == NOTED + turns * a_turn - state.noted.left
    state.hand_over(0)
    assert all(state.table.remembers("mallory", one, 0) for one in (0, NOTED - 1, NOTED + turns * a_turn - 1))


def test_a_portion_is_no_more_than_it_says_over_users_and_kinds_of_ids() -> None:
    quotas = Quotas(Mode.ENFORCE, ProducerIdSettings(), UserQuota.per_window(5))
    state = Counting(quotas, lambda: 7, 0, is_restored=False)
    for user in range(5):
        for producer_id in range(3):
            state.insert_uncharged(f"user-{user}", producer_id, 0)
        state.insert_transactional_id(f"user-{user}", 1, 0)
    left = [state.hand_over(0, 4) for _ in range(6)]
    assert left == [16, 12, 8, 4, 0, 0]
    assert state.taken == 15
    assert state.noted.users() == []
