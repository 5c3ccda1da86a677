"""Scenes: what may happen between a batch that is refused or held, and the one after it. One partition, two nodes.

In every scene the client has not read what became of its first batch when it sends the next one: answers are late. To
learn of a leader that has moved it asks for metadata, as clients do now and then. The first id of the scene's user
takes what tokens there are, so that the client's is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulator.schedule import Setup, Step

BEGINS_MS: Final = 450
AFTER_MS: Final = 150
LED_MS: Final = -200
"""Before a scene: where it takes place is settled by then, and clients may ask for metadata again."""
ONE, OTHER = 1, 2
"""The nodes. At first partition 0 is led by the first, partition 1 by the second."""
NEAR: Final = 1
"""The partition that is looked at: of an id known for long, the fresh one."""
BESIDE: Final = 0
LOADED, FRESH = 1, 2
"""Of three partitions."""
BYTE_RATE: Final = 40
"""Four requests within ten seconds are above it, for some seconds."""
SET_BYTE_RATE: Final = 40
HURRY_S: Final = 6.0
"""Delivery time-out of a client that is in a hurry."""


class Plan:
    """Steps of one client's scene, in ms from its beginning on."""

    def __init__(self, random: Random, setup: Setup) -> None:
        self.random = random
        self.client = setup.clients[0].name
        self.steps: list[Step] = []
        self.window_ms = setup.quotas.window_ms
        self.throttle_ms = min(self.window_ms, setup.quotas.max_throttle_ms)
        self.is_long_known = setup.is_long_known

    def at(self, after_ms: int, *step: object) -> None:
        """Have something happen."""
        self.steps.append((max(0, BEGINS_MS + after_ms), *step))

    def send(self, after_ms: int, partition: int = NEAR, count: int = 1) -> None:
        """Have the client send."""
        self.at(after_ms, "send", self.client, partition, count)

    def lead(self, after_ms: int, partition: int, node: int) -> None:
        """Have a partition led by a node, and the client learn of it."""
        self.at(after_ms, "move", partition, node)
        self.at(after_ms + self.random.choice((1, 4, 16)), "refresh", self.client)

    def late(self, after_ms: int, node: int, for_ms: int, *, but_ms: int = 0) -> None:
        """Have answers of a node be late, from the next Produce on; not those that come within `but_ms`."""
        self.at(after_ms, "late answers", self.client, node, but_ms, for_ms)

    def rogues(self, after_ms: int, count: int) -> None:
        """Have somebody else take the tokens."""
        self.at(after_ms, "rogues", "alice", count)

    def chance(self, share: float) -> bool:
        """Return whether it happens this time."""
        return self.random.random() < share


Scene = Callable[[Plan], None]


def steps(scene: Scene, random: Random, setup: Setup) -> tuple[Step, ...]:
    """Return the steps of a scene."""
    plan = Plan(random, setup)
    plan.rogues(-250, 1)
    scene(plan)
    # Whatever is late stays late until what was sent last is dealt with.
    plan.at(max(step[0] for step in plan.steps) - BEGINS_MS + AFTER_MS, "refresh", plan.client)
    return tuple(sorted(plan.steps, key=lambda step: step[0]))


def _later_batches(plan: Plan, after_ms: int) -> None:
    plan.send(after_ms, count=plan.random.choice((1, 1, 2)))
    if plan.chance(0.4):
        plan.send(after_ms + plan.random.choice((5, 60, 150, 500)))


def admitted_meanwhile(plan: Plan) -> None:
    """Another partition's batch is admitted, once there are tokens, before the refusal has been read."""
    random = plan.random
    node = random.choice((ONE, OTHER))
    plan.lead(LED_MS, NEAR, OTHER)
    plan.lead(LED_MS, BESIDE, node)
    admitted_ms = plan.window_ms + random.choice((30, 120))
    plan.late(-1, OTHER, admitted_ms + 1_000)
    plan.send(0)
    plan.send(admitted_ms, BESIDE)
    if node == ONE or plan.chance(0.3):
        plan.lead(admitted_ms + 5, NEAR, ONE)
    _later_batches(plan, admitted_ms + random.choice((20, 40, 150)))


def lifted(plan: Plan) -> None:
    """Quotas change so that nobody would be refused any more."""
    random = plan.random
    gap_ms = random.choice((40, 200, plan.throttle_ms + 50, 1_300))
    plan.lead(LED_MS, NEAR, OTHER)
    plan.late(-1, OTHER, gap_ms + 1_500)
    plan.send(0)
    _lift(plan, random.randrange(15, gap_ms - 10))
    if plan.chance(0.3):
        plan.lead(gap_ms - 10, NEAR, ONE)
    _later_batches(plan, gap_ms)


def _lift(plan: Plan, after_ms: int) -> None:
    kind = plan.random.choice(("observe", "observe", "exempt", "rate"))
    if kind == "observe":
        plan.at(after_ms, "mode", None, False)
    elif kind == "exempt":
        plan.at(after_ms, "exempt", "alice", True)
    else:
        plan.at(after_ms, "rate", 20)


def behind_a_mute(plan: Plan) -> None:
    """The first batch waits behind the refusal of another partition's, and its leader moves."""
    random = plan.random
    plan.lead(LED_MS, NEAR, OTHER)
    plan.lead(LED_MS, BESIDE, OTHER)
    plan.late(-1, OTHER, plan.throttle_ms + 900)
    plan.send(0, BESIDE)
    if plan.chance(0.8):
        plan.at(20, "mode", None, False)
    plan.send(25)
    mute_ends_ms = plan.throttle_ms + 12
    if plan.chance(0.6):
        plan.lead(35, NEAR, ONE)
        if plan.chance(0.5):
            _later_batches(plan, random.choice((60, mute_ends_ms - 300, mute_ends_ms)))
        else:
            # What was held is on its way to the old leader, and its answer cannot come.
            plan.at(60, "part", "gateway-1", "broker-2", mute_ends_ms + 400)
            _later_batches(plan, mute_ends_ms + random.choice((10, 60, 200)))
    else:
        # What was held comes too late for the leader that it goes to, and what follows it is in time again.
        plan.at(35, "move", NEAR, ONE)
        plan.at(mute_ends_ms + 20, "move", NEAR, OTHER)
        _later_batches(plan, mute_ends_ms + random.choice((25, 40)))


def read_in_part(plan: Plan) -> None:
    """Two batches are refused; the client reads that of the first only, and sends it again before a third one."""
    random = plan.random
    plan.lead(LED_MS, NEAR, OTHER)
    if plan.chance(0.5):
        # The connection is there, and so nothing else is on its way.
        plan.at(-100, "refresh", plan.client)
    plan.late(-1, OTHER, plan.window_ms + 700, but_ms=random.choice((2, 3, 4)))
    plan.send(0)
    plan.send(random.choice((1, 1, 2)))
    plan.send(random.choice((60, 150, plan.window_ms - 150)))
    plan.at(plan.window_ms + 50, "refresh", plan.client)


def early_return(plan: Plan) -> None:
    """Another partition's batch comes a moment before the deadline, through another connection."""
    random = plan.random
    plan.lead(LED_MS, NEAR, OTHER)
    plan.lead(LED_MS, BESIDE, ONE)
    plan.send(0)
    plan.send(plan.throttle_ms - random.choice((1, 10, 30, 60, 90)), BESIDE)


def given_up(plan: Plan) -> None:
    """A client in a hurry gives the first batch up, and sends the next one elsewhere."""
    random = plan.random
    plan.lead(LED_MS, NEAR, OTHER)
    hurry_ms = int(1_000 * HURRY_S)
    plan.late(-1, OTHER, hurry_ms + random.choice((-1_000, 4_000)))
    plan.send(0)
    if plan.chance(0.3):
        plan.send(random.choice((20, 300)))
    plan.lead(hurry_ms - random.choice((600, 2_000)), NEAR, ONE)
    plan.send(hurry_ms - random.choice((100, 300, 500)))
    if plan.chance(0.7):
        plan.at(hurry_ms + random.choice((-50, 500, 3_000)), "mode", None, False)
    plan.send(hurry_ms + random.choice((50, 3_000, 6_000)))


def behind_a_byte_wait(plan: Plan) -> None:
    """A beginning of a known id waits behind a byte throttle, and its leader moves to where the id is known.

    Three partitions: that of ONE is written to all the time, that of OTHER exceeds the rate, and the fresh one begins.
    """
    random = plan.random
    plan.lead(LED_MS, FRESH, OTHER)
    plan.send(-120, BESIDE)
    # Once its client has read that it is throttled, it sends nothing that could be held.
    plan.late(-1, OTHER, random.choice((300, 2_500)))
    plan.send(0, LOADED, 3)
    if plan.chance(0.3):
        # The beginning is not the first request that is held.
        plan.send(20, LOADED)
    plan.send(40, FRESH)
    if plan.chance(0.6):
        # Without a byte rate the hot path is open again. The mute goes on.
        plan.at(45, "byte rate", None)
        plan.send(140, BESIDE)
    if plan.chance(0.8):
        plan.lead(150, FRESH, ONE)
        plan.send(random.choice((170, 300, 700)), FRESH)
    else:
        # What was held comes too late for the leader that it goes to, and what follows it is in time again.
        plan.at(150, "move", FRESH, ONE)
        held_ms = random.choice((1_000, 3_000, 5_000))
        plan.at(held_ms, "move", FRESH, OTHER)
        plan.send(held_ms + random.choice((10, 45)), FRESH)


def held_beside_a_lane(plan: Plan) -> None:
    """The same, but the byte rate is gone, so that a lane has the other connection, before or after the beginning."""
    random = plan.random
    # Once a second a gateway looks for mutes that have become pointless.
    begins_ms = random.choice((0, 250, 500, 750))
    plan.lead(LED_MS, FRESH, OTHER)
    plan.send(-120, BESIDE)
    plan.late(begins_ms - 1, OTHER, random.choice((600, 2_500)))
    plan.send(begins_ms, LOADED, 3)
    plan.at(begins_ms + 20, "byte rate", None)
    for after_ms in (110, 125, 140):
        plan.send(begins_ms + after_ms, BESIDE)
    held_ms = begins_ms + random.choice((60, 160, 160))
    plan.send(held_ms, FRESH)
    # Who asks for metadata through it has it back from the lane.
    plan.at(begins_ms + 180, "lead", FRESH, ONE)
    if held_ms < begins_ms + 110:
        plan.send(begins_ms + 190, BESIDE)
    plan.send(begins_ms + random.choice((195, 210, 240)), FRESH)


def a_byte_rate_is_set(plan: Plan) -> None:
    """A byte rate is set while a lane has the connection."""
    random = plan.random
    # Once a second a gateway counts what lanes have carried.
    begins_ms = random.choice((0, 250, 500, 750))
    plan.at(-250, "byte rate", None)
    for after_ms in (0, 15, 30):
        plan.send(begins_ms + after_ms, BESIDE)
    plan.at(begins_ms + 40, "byte rate", SET_BYTE_RATE)
    for number in range(60):
        plan.send(begins_ms + 45 + number * 8, BESIDE)


def anything_between(plan: Plan) -> None:
    """Whatever may happen, in any order."""
    random = plan.random
    gap_ms = random.choice((30, 150, 600, 1_500, 2_500))
    plan.late(-1, random.choice((ONE, OTHER)), gap_ms + random.choice((5, 500)))
    plan.send(0)
    for _ in range(random.choice((1, 2, 3, 4))):
        after_ms = random.randrange(1, gap_ms)
        kind = random.choice(("move", "move", "beside", "near", "lift", "cut", "half-close", "rogues"))
        if kind == "move":
            plan.lead(after_ms, random.choice((NEAR, BESIDE)), random.choice((ONE, OTHER)))
        elif kind in ("beside", "near"):
            plan.send(after_ms, BESIDE if kind == "beside" else NEAR)
        elif kind == "lift":
            _lift(plan, after_ms)
        elif kind == "rogues":
            plan.rogues(after_ms, 1)
        else:
            plan.at(after_ms, kind, plan.client, random.randrange(3))
    _later_batches(plan, gap_ms)
