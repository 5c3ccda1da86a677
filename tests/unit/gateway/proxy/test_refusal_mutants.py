"""The tests of the model test: with any one rule of refusal broken, it must find the harm.

Three ways to find it: short schedules that were once found by chance and made minimal (each is harmless to the
code as it is), the exhaustive search, and random schedules with fixed seeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pidgate.gateway.proxy.apis.produce import ProduceApi
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.quota.admission import Admission
from pidgate.quota.held_beginnings import HeldBeginnings
from pidgate.quota.sticky import StickyRefusals
from tests.simulator.clients.batches import ModelViolation
from tests.unit.gateway.model.mutants import MUTANTS
from tests.unit.gateway.model.search import search
from tests.unit.gateway.model.steps import (
    LONG_PAUSE_MS,
    WINDOW_MS,
    Setup,
    Step,
    apply,
    play,
    random_setup,
    random_steps,
)
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


OVERTAKEN: list[Step] = [
    ("send", "p0", 0, (0,)),
    ("move", 0, 1),
    ("send", "p0", 1, (0,)),
]
"""What comes second is sent through another worker while the first batch waits for the state owner."""

ANSWERED_THERE_FIRST: list[Step] = [("decide",), ("decide",), ("arrive", 1), ("arrive", 1)]

KNOWN_FOR_LONG: list[Step] = [
    ("send", "p0", 1, (1,)),
    ("decide",),
    ("arrive", 1),
    ("arrive", 1),
    ("append", "p0", 1),
    ("answer", "p0", 1),
    ("read", "p0", 1),
    ("advance", LONG_PAUSE_MS),
]
"""The second worker forwards what is the id's without a question, and does not watch it any more."""

BEHIND_ANOTHER: list[Step] = [("move", 1, 0), ("send", "p0", 0, (1,))]
"""A request that waits for the state owner: what begins behind it has not been judged yet."""


def _nothing(*_args: object) -> bool:
    return False


def _held_first_only(api: ProduceApi, context: Conversation, *args: object) -> None:
    if not context.held:
        _held(api, context, *args)  # type: ignore[arg-type]


_held = ProduceApi.held

OF_WORKERS: dict[str, tuple[object, str, Callable[..., object], list[Step]]] = {
    "nobody notes a beginning": (
        HeldBeginnings,
        "note",
        _nothing,
        [*OVERTAKEN, *ANSWERED_THERE_FIRST],
    ),
    "nobody notes it, and the id is known": (
        HeldBeginnings,
        "note",
        _nothing,
        [*KNOWN_FOR_LONG, *OVERTAKEN],
    ),
    "a cache answers all the same": (
        Admission,
        "_known",
        lambda admission, session, batches, slice_key, _: all(
            session.admitted.get(batch[0]) == slice_key for batch in batches
        ),
        [*KNOWN_FOR_LONG, *OVERTAKEN],
    ),
    "the hot path answers all the same": (
        HeldBeginnings,
        "has_any",
        _nothing,
        [*KNOWN_FOR_LONG, *OVERTAKEN],
    ),
    "what is behind a held request is not noted": (
        ProduceApi,
        "held",
        _held_first_only,
        [*KNOWN_FOR_LONG, *BEHIND_ANOTHER, *OVERTAKEN],
    ),
    "what fails open was not held": (
        HeldBeginnings,
        "note",
        _nothing,
        [*OVERTAKEN, ("restart_state_owner",)],
    ),
    "a new state owner's answer is the last word": (
        HeldBeginnings,
        "note",
        _nothing,
        [
            ("send", "p0", 0, (0,)),
            ("move", 0, 1),
            ("restart_state_owner",),
            ("send", "p0", 1, (0,)),
            ("decide",),
            ("arrive", 1),
            ("arrive", 1),
        ],
    ),
    "what a broker did not take has passed": (
        StickyRefusals,
        "not_taken",
        _nothing,
        [
            ("send", "p0", 0, (0,)),
            ("move", 0, 1),
            ("decide",),
            ("arrive", 0),
            ("arrive", 0),
            ("append", "p0", 0),
            ("answer", "p0", 0),
            ("read", "p0", 0),
            ("send", "p0", 1, (0,)),
            ("move", 0, 0),
            ("send", "p0", 0, (0,)),
        ],
    ),
}
WORKERS = Setup((("java", ((1, 1), (1, 1))),), route=(0, 1))


@pytest.mark.parametrize("mutant", OF_WORKERS)
def test_a_short_schedule_of_workers_finds_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, rule, broken, steps = OF_WORKERS[mutant]
    _play_workers(steps)
    monkeypatch.setattr(place, rule, broken)
    with pytest.raises(ModelViolation):
        _play_workers(steps)


def _play_workers(steps: list[Step]) -> None:
    world = WORKERS.world(has_state_owner=True)
    for step in steps:
        apply(world, step)
    for channel in list(world.channels.values())[::-1]:  # the broker behind the second worker is faster
        while channel.to_broker:
            world.append(channel)
    world.drain()


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
