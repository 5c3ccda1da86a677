"""The table of the failover example, number by number."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from pidgate.pipeline.failover.words import kip_rows
from tests.pipeline import kip

TEXT, THEN_EVENLY, THEN_NEXT, EVENLY = kip.RULES
LOADS = st.dictionaries(st.integers(1, 9), st.integers(0, 250), min_size=2)


def living(told: list[kip.BrokerLoad]) -> dict[int, float]:
    """Loads of the living after the last step."""
    last = max(one.step for one in told)
    return {one.broker: float(one.load) for one in told if one.step == last and not one.dead}


def deaths(told: list[kip.BrokerLoad]) -> dict[int, float]:
    return {broker: float(load) for broker, load in kip.fatal_loads(told).items()}


def test_the_table_that_ships_is_that_of_the_model() -> None:
    told = [one for rule in kip.RULES for one in kip.run(rule)]
    assert kip_rows().to_pylist() == [
        {"rule": one.rule, "step": one.step, "broker": one.broker, "load": float(one.load), "dead": one.dead}
        for one in told
    ]


def test_the_texts_own_step() -> None:
    told = kip.run(TEXT)
    assert deaths(told) == {1: 100, 2: 210}
    assert living(told) == {3: 110, 4: 130, 5: 110, 6: 100}
    assert max(one.step for one in told) == 1


def test_then_evenly_it_stops_at_two() -> None:
    told = kip.run(THEN_EVENLY)
    assert deaths(told) == {1: 100, 2: 210}
    assert living(told) == {3: 162.5, 4: 182.5, 5: 162.5, 6: 152.5}


def test_then_mostly_to_the_next_all_die_in_order() -> None:
    told = kip.run(THEN_NEXT)
    assert list(deaths(told).items())[1:] == [(2, 210), (3, 236), (4, 299.6), (5, 364.96), (6, 660)]
    assert living(told) == {}


def test_evenly_from_the_start_nobody_else_dies() -> None:
    told = kip.run(EVENLY)
    assert deaths(told) == {1: 100}
    assert living(told) == {2: 170, 3: 120, 4: 140, 5: 120, 6: 110}


def test_a_third_death_is_certain_collapse_under_any_rule() -> None:
    assert sum(kip.LOADS.values()) == 660
    assert kip.most_deaths_survivable() == 2
    assert 3 * kip.LIMIT < 660 <= 4 * kip.LIMIT


@given(LOADS, st.sampled_from(kip.RULES))
def test_no_id_is_lost_or_made_and_only_above_the_limit_one_dies(
    loads: Mapping[int, int], rule: kip.Rule
) -> None:
    first = min(loads)
    told = kip.run(rule, loads, first_dead=first)
    fatal = kip.fatal_loads(told)
    assert all(load > kip.LIMIT for broker, load in fatal.items() if broker != first)
    for step in range(max(one.step for one in told) + 1):
        gone = {one.broker for one in told if one.dead and one.step < step}
        held = [one.load for one in told if one.step == step and one.broker not in gone]
        assert sum(held, Fraction()) == sum(loads.values())


@given(LOADS, st.sampled_from(kip.RULES[1:]))
def test_more_deaths_than_the_bound_allows_end_with_nobody(loads: Mapping[int, int], rule: kip.Rule) -> None:
    told = kip.run(rule, loads, first_dead=min(loads))
    if len(kip.fatal_loads(told)) > kip.most_deaths_survivable(loads):
        assert living(told) == {}
