"""The most new ids that a user may bring, from window, rate, burst and failures; and whether it was kept.

A token bucket (docs/reference/rules.md, What an id costs): its capacity is rate x burst, its refill rate / window,
and an id is admitted while it is not below zero. So in any time t, wherever it begins, at most

    rate x burst + rate x t / window + 1

ids are admitted; checked for every pair of admissions. So it is for the cluster's bucket, of all users together, and
for that of transactional ids. While a user is observed, or exempt, nothing is counted (observed.py). To a bucket that
is shared by a fleet whose topic works, comes what the documents allow for failures, and no more:

- ids that pass while a gateway restores its state pass uncharged (architecture.md, Restored, then enforced);
- a killed process has lost what it admitted in its last moments: 200 ms while the topic works, 5 s while only the
  state directory has it;
- a process begins with a full bucket if it keeps its state nowhere, if its clock was set, or if it cannot read the
  topic that has what its snapshot lacks;
- in a fleet two gateways may admit within one propagation delay what one of them would have refused; while the topic
  is out of reach each has a bucket of its own (docs/how-to/fleet.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from tests.simulator import admissions, observed
from tests.simulator.admissions import Admission, Admissions
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.loop import BEGAN_S

if TYPE_CHECKING:
    from tests.simulator.world import World

LAST_MOMENTS_S: Final = 0.35
"""What is admitted is in the topic after 200 ms, and what the topic takes."""
SNAPSHOT_S: Final = 5.35
"""What is admitted is in a snapshot after 5 s, and what the disk takes, while the topic does not have it."""
SLOW_DISK_S: Final = 3.0
"""Until a slow disk has written what was given to it."""
PROPAGATION_S: Final = 0.35
"""From a decision to its effect in the other gateways of a fleet whose topic works."""
NOTICED_S: Final = 8.0
"""Until a gateway has noticed that the topic works again, at the longest."""

Span = tuple[float, float]


@dataclass(slots=True)
class Bound:
    """Of one user. `free`: spans in which ids pass uncharged, by gateway ("": of all)."""

    rate: int
    window_s: float
    burst: Fraction
    free: list[tuple[str, Span]] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)
    apart: list[Span] = field(default_factory=list)
    """Two gateways that do not know of each other."""

    def most(self, since_s: float, until_s: float) -> int:
        """Return how many ids may be admitted from one moment to another, both included."""
        capacity = self.rate * self.burst
        passed_ms = round((until_s - since_s) * 1_000) + 1  # its clock counts whole ones
        refill = self.rate * Fraction(passed_ms, round(self.window_s * 1_000))
        buckets = 2 if any(_touch(span, (since_s, until_s)) for span in self.apart) else 1
        found = buckets * (capacity + refill + 1)
        found += sum(capacity + 1 for reset_s in self.resets if since_s <= reset_s <= until_s)
        return int(found)


def check(world: World) -> None:
    """Raise ModelViolation if a user, or all together, brought more ids than the quota allows."""
    quotas = world.setup.quotas
    if not world.fleet.gateways:
        return
    if quotas.rate is not None or quotas.cluster_rate is not None:
        by_user = counted(world, admissions.producer_ids(world))
        if quotas.rate is not None:
            bound = bound_of(world, rates_of(world))
            for user, admitted in by_user.items():
                _check(f"user {user} brought", "new producer ids", admitted, bound)
        if quotas.cluster_rate is not None:
            together = sorted((one for admitted in by_user.values() for one in admitted), key=_by_time)
            paid = [one for one, is_overshoot in _with_overshoot(together) if not is_overshoot]
            _check("all brought", "new producer ids", paid, bound_of(world, [quotas.cluster_rate]))
    if quotas.transactional_ids_rate is not None:
        bound = bound_of(world, [quotas.transactional_ids_rate])
        for user, admitted in counted(world, admissions.transactional_ids(world)).items():
            _check(f"user {user} brought", "new transactional ids", admitted, bound)


def rates_of(world: World) -> list[int]:
    """Return the rates of ids that hold for a user in the course of a schedule."""
    return [world.setup.quotas.rate or 0, *(step[2] for step in world.schedule.steps if step[1] == "rate")]


def _by_time(admission: Admission) -> float:
    return admission.at_s


def counted(world: World, by_user: Admissions) -> Admissions:
    """Return those that were paid for: neither passed while nobody could know better, nor by a user without a quota."""
    bound = bound_of(world, [])
    found: Admissions = {}
    for user, admitted in by_user.items():
        without = observed.spans(world, user)
        counted = found[user] = []
        for one, is_overshoot in _with_overshoot(admitted):
            if is_overshoot or _is_free(bound, one.gateway, one.at_s):
                continue
            if not any(since_s <= one.at_s <= until_s for since_s, until_s in without):
                counted.append(one)
    return found


def _with_overshoot(admitted: Iterable[Admission]) -> Iterator[tuple[Admission, bool]]:
    """Yield what was admitted, and whether another gateway may have admitted something that this one had not heard."""
    latest: dict[str, float] = {}
    for one in admitted:
        yield (
            one,
            any(
                other != one.gateway and one.at_s - then_s < PROPAGATION_S for other, then_s in latest.items()
            ),
        )
        latest[one.gateway] = one.at_s


def _check(who: str, what: str, counted: list[Admission], bound: Bound) -> None:
    for last, until in enumerate(counted):
        for first in range(last + 1):
            since_s, until_s = counted[first].at_s, until.at_s
            brought, most = last - first + 1, bound.most(since_s, until_s)
            if brought > most:
                raise ModelViolation(
                    f"{who} {brought} {what} from {since_s - BEGAN_S:.3f} to {until_s - BEGAN_S:.3f}, "
                    f"at most {most} are allowed: {[one.what for one in counted[first : last + 1]]}"
                )


def bound_of(world: World, rates: list[int]) -> Bound:
    """Return the bound that the setup and what has failed give, at the highest of these rates."""
    setup, history = world.setup, world.fleet.history
    bound = Bound(max(rates, default=0), setup.quotas.window_ms / 1_000, Fraction(str(setup.quotas.burst)))
    topic_troubles = [(at_s, at_s + for_s) for at_s, what, _, for_s in history if what == "topic"]
    clock_was_set = any(what == "clock" for _, what, _, _ in history)
    started: set[str] = set()
    is_kept = setup.has_state_dir or (setup.has_events and not topic_troubles)
    killed_s: dict[str, float] = {}
    snapshot_s = SNAPSHOT_S
    if any(what == "disk" for _, what, *_ in history):
        snapshot_s += SLOW_DISK_S

    def has_topic(since_s: float, until_s: float) -> bool:
        spans = ((began_s, ended_s + NOTICED_S) for began_s, ended_s in topic_troubles)
        return setup.has_events and not any(_touch(span, (since_s, until_s)) for span in spans)

    def forgets(gateway: str, at_s: float) -> bool:
        """Return whether a start finds less than was there at the last kill, or the stop, before it."""
        if not is_kept or clock_was_set:
            return True
        # While the topic has all, the snapshot is old.
        last_s = killed_s.get(gateway, at_s)
        is_old = setup.has_events and has_topic(last_s - snapshot_s - NOTICED_S, last_s - snapshot_s)
        return gateway in killed_s and is_old and not has_topic(at_s, restored_s(world, gateway, at_s))

    for at_s, what, gateway, for_s in history:
        if what == "start":
            bound.free.append((gateway, (at_s, restored_s(world, gateway, at_s))))
            if gateway in started and forgets(gateway, at_s):
                bound.resets.append(at_s)
            started.add(gateway)
        elif what == "kill":
            lost_s = LAST_MOMENTS_S if has_topic(at_s - snapshot_s, at_s) else snapshot_s
            bound.free.append((gateway, (at_s - lost_s, at_s)))
            killed_s[gateway] = at_s
        if setup.shape.is_fleet and what == "start":
            bound.apart.append((at_s - LAST_MOMENTS_S, restored_s(world, gateway, at_s) + PROPAGATION_S))
        if setup.shape.is_fleet and what in ("kill", "freeze", "topic", "clock"):
            bound.apart.append((at_s - LAST_MOMENTS_S, at_s + for_s + NOTICED_S))
    return bound


def restored_s(world: World, gateway: str, started_s: float) -> float:
    """Return when the gateway's state was whole after this start; the end of the run, if it never was."""
    for line in world.machine.logged(Event.STATE_RESTORED):
        if line.process == gateway and line.at_s >= started_s:
            return line.at_s
    return world.loop.time()


def _is_free(bound: Bound, gateway: str, at_s: float) -> bool:
    return any(whose == gateway and since_s <= at_s <= until_s for whose, (since_s, until_s) in bound.free)


def _touch(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
