"""Every schedule of a small world: what may happen between three batches of one new producer id, in every order.

The id finds no token. What its client is answered waits until a step has it read; leaders move, connections are cut,
time passes, the mode changes. Each schedule is played from its beginning to its end, with all checks (playing.py); one
whose last step found nothing to do is continued by none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.simulator.playing import play
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Shape, Step, Weather

Act = tuple[Any, ...]
"""A step without its time."""

NODES: Final = (1, 2)
WINDOW_MS: Final = 2_000
MOST_THROTTLE_MS: Final = 1_000
MOST_LEADS: Final = 3
MOST_MODES: Final = 2
_WAITS: Final[tuple[Act, ...]] = (("wait", MOST_THROTTLE_MS), ("wait", WINDOW_MS))


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """`gap_ms`: from one step to the next; all that a step sends on its way has arrived by then.

    `begins_ms`: how long ago somebody came who takes the token; its id passes after 120 ms.
    """

    family: str
    shape: Shape = Shape.ONE
    changes_mode: bool = False
    gap_ms: int = 20
    begins_ms: int = 300
    batches: tuple[int, int] = (2, 1)
    """Of each partition. At first it is led by the node of the same place; what takes the token, by the second."""
    seed: int = 1

    @property
    def client(self) -> str:
        return f"{self.family}-1"

    def schedule(self, acts: tuple[Act, ...]) -> Schedule:
        """Return the schedule in which this happens, and nothing else."""
        setup = Setup(
            self.shape,
            brokers=len(NODES),
            partitions=len(self.batches),
            has_events=self.shape.is_fleet,
            weather=Weather.EVEN,
            quotas=QuotaSetup(rate=1, window_ms=WINDOW_MS, max_throttle_ms=MOST_THROTTLE_MS),
            clients=(ClientSetup(self.client, self.family),),
        )
        steps: list[Step] = [(0, "rogues", "alice", 1), (self.begins_ms - 1, "read on demand", self.client)]
        at_ms = self.begins_ms
        for verb, *args in acts:
            if verb == "wait":
                at_ms += args[0]
            else:
                steps.append((at_ms, verb, *args))
                at_ms += self.gap_ms
        return Schedule(self.seed, setup, (*steps, (at_ms, "wait")))

    def next_acts(self, acts: tuple[Act, ...]) -> Iterator[Act]:
        """Yield what may happen next, once these have happened."""
        client = self.client
        sent = [act[2] for act in acts if act[0] == "send"]
        leads = [act for act in acts if act[0] == "lead"]
        for partition, most in enumerate(self.batches):
            if sent.count(partition) < most:
                yield "send", client, partition, 1
            led_by = [act[2] for act in leads if act[1] == partition] or [NODES[partition]]
            if len(leads) < MOST_LEADS:
                yield "lead", partition, NODES[0] if led_by[-1] == NODES[1] else NODES[1]
        if sent:
            for node_id in NODES:
                yield "read", client, node_id
                yield "cut from", client, node_id
        if acts and acts[-1][0] != "wait":
            yield from _WAITS
        modes = [act for act in acts if act[0] == "mode"]
        if self.changes_mode and len(modes) < MOST_MODES:
            yield "mode", None, bool(len(modes) % 2)


BESIDE_EACH: Final = SmallWorld("java", Shape.SIDECARS, changes_mode=True, gap_ms=400)
"""What one gateway has refused, the topic has brought to the other one by the next step."""

AT_ONCE: Final = SmallWorld("java", Shape.SIDECARS, begins_ms=140, batches=(1, 2))
"""The topic has not brought anything yet: one gateway may refuse what the other one admits."""


@dataclass(slots=True)
class Found:
    """What a search has seen. `violation`: the schedule that was wrong, and how."""

    schedules: int = 0
    violation: tuple[Schedule, str] | None = None


def search(small: SmallWorld, depth: int) -> Found:
    """Play every schedule of up to `depth` acts, until one is wrong."""
    found = Found()
    waiting: list[tuple[Act, ...]] = [()]
    while waiting:
        acts = waiting.pop()
        schedule = small.schedule(acts)
        result = play(schedule)
        found.schedules += 1
        if result.violation:
            found.violation = schedule, result.violation
            return found
        if len(acts) < depth and len(schedule.steps) - 2 not in result.idle:
            waiting += [(*acts, act) for act in small.next_acts(acts)]
    return found
