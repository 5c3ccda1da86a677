"""The most new producer ids that a user may bring, from window, rate, burst and failures; and whether it was kept.

A token bucket (docs/rules.md, What an id costs): its capacity is rate x burst, its refill rate / window, and an id is
admitted while it is not below zero. So in any time t, wherever it begins, at most

    rate x burst + rate x t / window + 1

ids are admitted; checked for every pair of admissions. To a bucket that is shared by all processes of a gateway, and
by a fleet whose topic works, comes what the documents allow for failures, and no more:

- ids that pass while a gateway restores its state pass uncharged (architecture.md, Restored, then enforced);
- a process that was killed has lost what it admitted in its last moments (Events are in nobody's way: 200 ms), and one
  that keeps its state nowhere, or whose topic was out of reach, or whose clock was set, begins with a full bucket;
- a worker whose state owner is gone lets ten times the rate pass in a window (Fail open);
- in a fleet two gateways may admit within one propagation delay what one of them would have refused; while the topic
  is out of reach each has a bucket of its own (docs/fleet.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from pidgate.protocol import codec
from pidgate.quota.grace import GRACE_TIMES_RATE
from tests.simulator import wiretap
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.loop import BEGAN_S
from tests.simulator.schedule import Shape

if TYPE_CHECKING:
    from tests.simulator.world import World

ADD_PARTITIONS: Final = (24).to_bytes(2, "big")
LAST_MOMENTS_S: Final = 0.35
"""What is admitted is in journal and topic after 200 ms, and what the disk or the topic takes."""
PROPAGATION_S: Final = 0.35
"""From a decision to its effect in the other gateways of a fleet whose topic works."""
ANSWER_S: Final = 0.02
"""A state owner's answer on its way to its worker."""
NOTICED_S: Final = 8.0
"""Until a worker has noticed that its state owner is back, at the longest."""

Span = tuple[float, float]


@dataclass(slots=True)
class Bound:
    """Of one user. `free`: spans in which ids pass uncharged, by gateway ("": of all)."""

    rate: int
    window_s: float
    burst: Fraction
    decision_s: float
    """From a decision until the id passes."""
    free: list[tuple[str, Span]] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)
    apart: list[Span] = field(default_factory=list)
    """Two gateways that do not know of each other."""
    unattended: list[Span] = field(default_factory=list)
    """Workers without their state owner."""

    def most(self, since_s: float, until_s: float) -> int:
        """Return how many ids may be admitted from one moment to another, both included."""
        capacity = self.rate * self.burst
        passed_ms = round((until_s - since_s + self.decision_s) * 1_000) + 1  # its clock counts whole ones
        refill = self.rate * Fraction(passed_ms, round(self.window_s * 1_000))
        buckets = 2 if any(_touch(span, (since_s, until_s)) for span in self.apart) else 1
        found = buckets * (capacity + refill + 1)
        found += sum(capacity + 1 for reset_s in self.resets if since_s <= reset_s <= until_s)
        windows: set[int] = set()
        for began_s, ended_s in self.unattended:
            if _touch((began_s, ended_s), (since_s, until_s)):
                first, last = max(began_s, since_s), min(ended_s, until_s)
                windows.update(range(int(first // self.window_s), int(last // self.window_s) + 1))
        return int(found + GRACE_TIMES_RATE * self.rate * len(windows))


def check(world: World) -> None:
    """Raise ModelViolation if a user brought more ids than the quota allows."""
    quotas = world.setup.quotas
    is_held = quotas.is_enforced and quotas.rate is not None and world.fleet.gateways
    if not is_held or any(step[1] in ("mode", "exempt") for step in world.schedule.steps):
        return
    bound = bound_of(world)
    for user, admitted in admissions(world).items():
        counted: list[tuple[float, int]] = []
        latest: dict[str, float] = {}
        for at_s, gateway, producer_id in admitted:
            is_overshoot = any(
                other != gateway and at_s - then_s < PROPAGATION_S for other, then_s in latest.items()
            )
            latest[gateway] = at_s
            if not is_overshoot and not _is_free(bound, gateway, at_s):
                counted.append((at_s, producer_id))
        _check(user, counted, bound)


def _check(user: str, counted: list[tuple[float, int]], bound: Bound) -> None:
    for last, (until_s, _) in enumerate(counted):
        for first in range(last + 1):
            since_s = counted[first][0]
            brought, most = last - first + 1, bound.most(since_s, until_s)
            if brought > most:
                ids = [producer_id for _, producer_id in counted[first : last + 1]]
                raise ModelViolation(
                    f"user {user} brought {brought} new producer ids from {since_s - BEGAN_S:.3f} to "
                    f"{until_s - BEGAN_S:.3f}, at most {most} are allowed: {ids}"
                )


def admissions(world: World) -> dict[str, list[tuple[float, str, int]]]:
    """Return when each new id passed for the first time, through which gateway, by user."""
    found: dict[str, list[tuple[float, str, int]]] = {}
    known: set[int] = set()
    added: dict[int, float] = {}
    counts_transactional = world.setup.quotas.enforces_transactional
    for frame in wiretap.written_to_brokers(world):
        if frame.raw[:2] == ADD_PARTITIONS and counts_transactional:
            # Before version 2 an id is paid for when its first partitions are added.
            request = codec.decode_request(frame.raw, frame.head)
            added.setdefault(request.v3_and_below_producer_id, frame.at_s)
        for name, numbers in wiretap.batches_in(frame):
            if numbers.producer_id in known:
                continue
            known.add(numbers.producer_id)
            client = world.applications[name.producer].setup
            if client.is_transactional and not counts_transactional:
                continue
            user = client.user if world.setup.has_login else "ANONYMOUS"
            gateway = world.fleet.gateway_of(frame.process)
            at_s = added.get(numbers.producer_id, frame.at_s)
            found.setdefault(user, []).append((at_s, gateway, numbers.producer_id))
    return {user: sorted(admitted) for user, admitted in found.items()}


def bound_of(world: World) -> Bound:
    """Return the bound that the setup and what has failed give."""
    setup, history = world.setup, world.fleet.history
    rates = [setup.quotas.rate or 0, *(step[2] for step in world.schedule.steps if step[1] == "rate")]
    decision_s = ANSWER_S if setup.shape is Shape.WORKERS else 0.0
    bound = Bound(max(rates), setup.quotas.window_ms / 1_000, Fraction(str(setup.quotas.burst)), decision_s)
    topic_troubles = [(at_s, at_s + for_s) for at_s, what, _, for_s in history if what == "topic"]
    clock_was_set = any(what == "clock" for _, what, _, _ in history)
    is_kept = setup.has_state_dir or (setup.has_events and not topic_troubles)
    started: set[str] = set()
    for at_s, what, process, for_s in history:
        gateway = world.fleet.gateway_of(process)
        if what == "start":
            bound.free.append((gateway, (at_s, _restored_s(world, gateway, at_s))))
            if gateway in started and (not is_kept or clock_was_set):
                bound.resets.append(at_s)
            started.add(gateway)
        elif what == "kill":
            bound.free.append((gateway, (at_s - LAST_MOMENTS_S, at_s)))
            if process.endswith("/owner"):
                # Its supervisor starts it again, and it restores its state anew.
                back_s = _logged_s(world, gateway, at_s, Event.STATE_OWNER_CONNECTED)
                bound.free.append((gateway, (back_s, _restored_s(world, gateway, at_s))))
                if not is_kept or clock_was_set:
                    bound.resets.append(at_s)
        if setup.shape is Shape.WORKERS and what in ("start", "kill", "freeze", "link"):
            bound.unattended.append((at_s, at_s + for_s + NOTICED_S))
        if setup.shape.is_fleet and what == "start":
            bound.apart.append((at_s - LAST_MOMENTS_S, _restored_s(world, gateway, at_s) + PROPAGATION_S))
        if setup.shape.is_fleet and what in ("kill", "freeze", "topic", "clock"):
            bound.apart.append((at_s - LAST_MOMENTS_S, at_s + for_s + NOTICED_S))
    return bound


def _restored_s(world: World, gateway: str, started_s: float) -> float:
    return _logged_s(world, gateway, started_s, Event.STATE_RESTORED)


def _logged_s(world: World, gateway: str, since_s: float, event: Event) -> float:
    """Return when a process of the gateway next logged that; the end of the run, if none did."""
    for line in world.machine.lines:
        is_it = line.event == event and world.fleet.gateway_of(line.process) == gateway
        if is_it and line.at_s >= since_s:
            return line.at_s
    return world.loop.time()


def _is_free(bound: Bound, gateway: str, at_s: float) -> bool:
    return any(whose == gateway and since_s <= at_s <= until_s for whose, (since_s, until_s) in bound.free)


def _touch(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
