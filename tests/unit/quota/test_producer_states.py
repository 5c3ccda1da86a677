"""The forecast of producer states: how exact it is, what ends, and what several gateways make of it together."""

from __future__ import annotations

from typing import Final

import pytest

from pidgate.events.definitions import BrokerStates, LifecycleEvent
from pidgate.gateway.state.shared_states import take_states, told_states
from pidgate.quota.producer_states import REGISTERS, PairSketch, ProducerStates, estimate, pair_hash
from pidgate.quota.settings import ProducerIdSettings

REMEMBER_MS: Final = 40_000
SLICE_MS: Final = REMEMBER_MS // 4


def states() -> ProducerStates:
    return ProducerStates(ProducerIdSettings(remember_ms=REMEMBER_MS))


def use(
    known: ProducerStates,
    producer_ids: range,
    *,
    partitions: int = 1,
    brokers: tuple[int, ...] = (1,),
    now_ms: int = 0,
    user: str = "alice",
) -> None:
    for producer_id in producer_ids:
        for partition in range(partitions):
            known.note(user, pair_hash(producer_id, b"t", partition), brokers, now_ms)


def counted(known: ProducerStates, now_ms: int = 0) -> dict[int, int]:
    return {one.node_id: one.count for one in known.by_broker(now_ms)}


@pytest.mark.parametrize("number", [0, 1, 10, 100, 1_000, 3_000, 20_000])
def test_a_sketch_counts_within_four_standard_errors(number: int) -> None:
    sketch = PairSketch(REGISTERS, SLICE_MS)
    for producer_id in range(number):
        for _ in range(2):
            sketch.add(pair_hash(producer_id, b"t", 0), 0)
    assert estimate(sketch.registers) == pytest.approx(number, rel=4 * 1.04 / REGISTERS**0.5)


def test_ids_of_a_block_and_partitions_of_a_topic_count_alike() -> None:
    wide, many = states(), states()
    use(wide, range(50), partitions=100)
    use(many, range(5_000))
    for known in (wide, many):
        assert counted(known)[1] == pytest.approx(5_000, rel=0.12)


def test_each_replica_has_a_state_and_the_fullest_broker_comes_first() -> None:
    known = states()
    use(known, range(100), brokers=(1, 2))
    use(known, range(1_000, 1_900), brokers=(2,))
    assert [one.node_id for one in known.by_broker(0)] == [2, 1]
    assert counted(known) == {1: pytest.approx(100, rel=0.1), 2: pytest.approx(1_000, rel=0.12)}


def test_a_pair_counts_until_remember_after_its_last_use_and_a_slice_longer_at_most() -> None:
    known = states()
    use(known, range(100))
    use(known, range(50), now_ms=REMEMBER_MS // 2)
    assert counted(known, REMEMBER_MS)[1] == pytest.approx(100, rel=0.1)
    assert counted(known, REMEMBER_MS + SLICE_MS)[1] == pytest.approx(50, rel=0.1)
    assert counted(known, REMEMBER_MS // 2 * 3)[1] == pytest.approx(50, rel=0.1)
    assert counted(known, REMEMBER_MS // 2 * 3 + SLICE_MS) == {1: 0}


def test_growth_is_that_of_the_last_hour() -> None:
    known = ProducerStates(ProducerIdSettings())
    use(known, range(100))
    known.sweep(0)
    use(known, range(100, 1_100), now_ms=1_800_000)
    (one,) = known.by_broker(1_800_000)
    assert one.per_hour == pytest.approx(2_000, rel=0.15)


def tell(teller: ProducerStates, hearer: ProducerStates, at_ms: int = 0, now_ms: int = 0) -> int:
    event = lifecycle(told_states(teller, at_ms))
    take_states(event, hearer, at_ms, now_ms)
    return len(event.producer_states)


def lifecycle(told: list[BrokerStates]) -> LifecycleEvent:
    return LifecycleEvent(
        cluster="c",
        gateway_id="g",
        incarnation="i",
        seq=1,
        wall_time_ms=0,
        decision_time_ms=0,
        phase="alive",
        mode="observe",
        window_ms=1,
        remember_ms=REMEMBER_MS,
        producer_states=told,
    )


def test_gateways_count_a_pair_once_and_tell_only_what_is_new() -> None:
    one, other = states(), states()
    use(one, range(1_000))
    use(other, range(500, 1_500))
    assert (tell(one, other), tell(other, one)) == (1, 1)
    for known in (one, other):
        assert counted(known)[1] == pytest.approx(1_500, rel=0.12)
    assert tell(one, other) == 0, "nothing is new"


def test_told_states_end_where_they_were_told_even_if_gateways_go_on_telling() -> None:
    one, other = states(), states()
    use(one, range(1_000))
    tell(one, other)
    for now_ms in range(SLICE_MS, REMEMBER_MS + 2 * SLICE_MS, SLICE_MS):
        use(other, range(10), now_ms=now_ms)
        tell(other, one, now_ms, now_ms)
        tell(one, other, now_ms, now_ms)
    assert counted(one, now_ms)[1] < 20
    assert counted(other, now_ms)[1] < 20


def test_a_history_counts_as_of_its_time() -> None:
    one, restarted = states(), states()
    use(one, range(1_000))
    tell(one, restarted, now_ms=REMEMBER_MS)
    assert counted(restarted, REMEMBER_MS)[1] == pytest.approx(1_000, rel=0.12)
    assert counted(restarted, REMEMBER_MS + SLICE_MS) == {1: 0}


@pytest.mark.parametrize("registers", ["", "!", "AAAA", "eJwDAAAAAAE="])
def test_what_cannot_be_read_is_left_out(registers: str) -> None:
    known = states()
    take_states(lifecycle([BrokerStates(node_id=1, registers=registers)]), known, 0, 0)
    assert counted(known) in ({}, {1: 0})
    known.merge(1, b"\xff" * REGISTERS, 0, 0)
    assert counted(known).get(1, 0) == 0


def test_users_without_a_pair_are_forgotten() -> None:
    known = states()
    use(known, range(100), user="bob")
    assert known.of_user("bob", 0) == pytest.approx(100, rel=0.3)
    known.sweep(REMEMBER_MS + SLICE_MS)
    assert known.of_user("bob", REMEMBER_MS + SLICE_MS) == 0
    assert not known._users
