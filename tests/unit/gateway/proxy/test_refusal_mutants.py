"""The tests of the model test: with any one rule of refusal broken, it must find the harm.

Three ways to find it: short schedules that were once found by chance and made minimal (each is harmless to the
code as it is), the exhaustive search, and random schedules with fixed seeds.
"""

from __future__ import annotations

import random

import pytest

from tests.unit.gateway.model.clients import ModelViolation
from tests.unit.gateway.model.mutants import MUTANTS
from tests.unit.gateway.model.search import search
from tests.unit.gateway.model.steps import WINDOW_MS, Setup, Step, apply, play, random_setup, random_steps
from tests.unit.gateway.model.world import AdmissionFactory, World

LIBRDKAFKA_PAIR = Setup((("librdkafka", ((1, 1), ())),))

SCHEDULES: dict[str, tuple[Setup, list[Step]]] = {
    "closed for an entry that stays": (
        Setup((("java", ((1,), (3, 1))),)),
        [
            ("rogue", 0),
            ("send", "p0", 0, (1,)),
            ("send", "p0", 0, (1,)),
            ("read", "p0", 0),
            ("expire", "p0", 1),
        ],
    ),
    "an early return extends its deadline": (
        Setup((("java", ((1,), (1,))),)),
        [
            ("rogue", 0),
            ("send", "p0", 0, (0,)),
            ("advance", 904),
            ("send", "p0", 1, (1,)),
            ("read", "p0", 0),
            ("cut", "p0", 0),
        ],
    ),
    "the latest refusal stands": (
        Setup((("librdkafka", ((1, 3, 1), ())),)),
        [
            ("rogue", 0),
            ("send", "p0", 0, (0,)),
            ("send", "p0", 0, (0,)),
            ("read", "p0", 0),
            ("send", "p0", 0, (0,)),
            ("send", "p0", 0, (0,)),
        ],
    ),
    "lifted by an exemption": (
        LIBRDKAFKA_PAIR,
        [("rogue", 0), ("send", "p0", 0, (0,)), ("exempt", True), ("send", "p0", 0, (0,))],
    ),
    "no rule for first sight above 0": (
        Setup((("java", ((1, 1), ())),), route=(0, 1)),
        [("rogue", 0), ("send", "p0", 0, (0,)), ("move", 0, 1), ("send", "p0", 1, (0,))],
    ),
    "passed over any connection": (
        Setup((("librdkafka", ((), (1,))), ("java", ((1,), (1, 3))))),
        [
            ("send", "p0", 1, (1,)),
            ("send", "p1", 1, (1,)),
            ("read", "p1", 1),
            ("send", "p1", 1, (1,)),
            ("send", "p1", 0, (0,)),
            ("move", 1, 0),
            ("mode", "observe"),
        ],
    ),
    "new ids are not watched": (
        Setup((("java", ((1,), (1, 1))),), route=(0, 1)),
        [
            ("rogue", 1),
            ("send", "p0", 1, (1,)),
            ("send", "p0", 0, (0,)),
            ("move", 1, 0),
            ("send", "p0", 0, (1,)),
        ],
    ),
}

SEARCHED = (
    "cache before sticky",
    "the hot path before sticky",
    "entries expire by age",
    "lifted per id, not per partition",
    "lifted by observing",
    "lifted by a batch above",
    "inserted before charged",
)
RANDOM_SCHEDULES = 3_000


def test_each_mutant_has_its_proof() -> None:
    assert set(SCHEDULES) | set(SEARCHED) == set(MUTANTS)


@pytest.mark.parametrize("mutant", SCHEDULES)
def test_a_short_schedule_finds_it(mutant: str) -> None:
    setup, steps = SCHEDULES[mutant]
    play(setup, steps)
    with pytest.raises(ModelViolation):
        play(setup, steps, MUTANTS[mutant])


@pytest.mark.parametrize("mutant", SEARCHED)
def test_the_exhaustive_search_finds_it(mutant: str) -> None:
    world = Setup((("java", ((1, 1), (1,))),)).world(MUTANTS[mutant])
    world.rogue(0)
    assert search(world, 5, extra=_cuts_and_modes).violation is not None


@pytest.mark.parametrize(
    "mutant", [*SEARCHED, "no rule for first sight above 0", "the latest refusal stands"]
)
def test_random_schedules_find_it(mutant: str) -> None:
    assert any(_finds(number, MUTANTS[mutant]) for number in range(RANDOM_SCHEDULES))


def _cuts_and_modes(world: World) -> list[Step]:
    other = "observe" if world.quotas.mode == "enforce" else "enforce"
    return [("cut", *key) for key in world.channels] + [("advance", WINDOW_MS), ("mode", other)]


def _finds(number: int, admission: AdmissionFactory) -> bool:
    chooser = random.Random(number)
    world = random_setup(chooser, routes=((0, 0), (0, 1))).world(admission)
    try:
        for step in random_steps(world, chooser, chooser.randint(5, 50)):
            apply(world, step)
        world.drain()
    except ModelViolation:
        return True
    return False
