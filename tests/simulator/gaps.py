"""Batches that overtook an earlier one of their producer and partition: who is to blame, and whom it excuses.

A broker that knows nothing of a producer id takes any first sequence (KIP-360). So a batch that arrives while the one
before it is missing is appended where the broker has no state, and the earlier one can never follow: it fails, or a
client that takes a success for one of all that came before (librdkafka) is led to believe in it. Where the broker has
state it answers OUT_OF_ORDER_SEQUENCE_NUMBER. Both happen without any gateway, too: a leader that moves while the
earlier batch is on the wire, or refuses that one (KAFKA-15591), a leader that is truncated behind its clients' back.

The gateway is to blame where the earlier batch had reached it and it did not hand it on at once, and yet let the later
one pass. It is excused where brokers alone do the same:

- The earlier batch was on its way to a broker that had answered before that it leads no more.
- Both left in order over one connection, the later one before the answer to the earlier one: a broker that gets the
  lead in between refuses the first and takes the second.
- The leader answers the later batch with OUT_OF_ORDER_SEQUENCE_NUMBER, so that it has state and nothing is lost, and
  - a broker had answered the earlier one NOT_LEADER: Java sends new batches before it has read all such answers; or
  - the earlier one went to another node, and no gateway had refused it: Java sends new batches to a new leader without
    an answer from the old one. A broker that throttles keeps the earlier one unread as a gateway does; or
  - a batch below the earlier one lifted its refusal (decision 0004, A batch below a refused one).
- Two gateways of a fleet (decision 0004): one knows what the other holds or refuses when the topic has brought it.
  Where a client's connections lead through both, and the topic works, that is no excuse after PROPAGATION_S. A gateway
  watches the ids that are new to it before each broker of its own, and only a change of mode makes it forget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulator import wiretap
from tests.simulator.clients.batches import ModelViolation, State
from tests.simulator.gateway import node_at
from tests.simulator.lanes import LONGEST_DELAY_S
from tests.simulator.ledger import Name, Numbers, Seen
from tests.simulator.loop import BEGAN_S
from tests.simulator.quota_bound import PROPAGATION_S
from tests.simulator.schedule import Shape

if TYPE_CHECKING:
    from tests.simulator.world import World

NOT_LEADER = 6
OUT_OF_ORDER = 45
AT_ONCE_S = 0.000_5
"""A gateway takes no time of its own to hand on a request."""
READ_WITHIN_S = AT_ONCE_S + 5 * LONGEST_DELAY_S
"""A lane's thread may get the core a little later, some times in a row: what waits in its kernel has not come yet."""

Overtaken = dict[tuple[str, int], Seen]
"""By producer and partition: the first batch that overtook another one, where no gateway was to blame."""


def overtaken(world: World, ledger: list[Seen]) -> Overtaken:
    """Return where batches were overtaken. Raises ModelViolation where a gateway let that happen."""
    found: Overtaken = {}
    begun: set[tuple[int, int]] = set()
    written: set[Name] = set()
    stay: _Stay | None = None
    for seen in ledger:
        id_here = seen.numbers.producer_id, seen.partition
        is_first = seen.error_code == 0 and id_here not in begun
        is_late = seen.error_code == OUT_OF_ORDER or (is_first and seen.numbers.base_sequence > 0)
        if is_late and seen.name not in written:
            stay = stay or _Stay(world, ledger)
            _judge(world, stay, seen, written)
            found.setdefault((seen.name.producer, seen.partition), seen)
        if seen.error_code == 0:
            begun.add(id_here)
            written.add(seen.name)
    return found


class _Left(NamedTuple):
    """A batch that a gateway wrote to a broker. `number` counts all that was written."""

    at_s: float
    number: int
    process: str
    link: str


_NEVER: Final = _Left(0.0, -1, "", "")


class _Stay:
    """When batches came to a gateway, were refused there, left it for a broker, and were answered, in order."""

    def __init__(self, world: World, ledger: list[Seen]) -> None:
        self._ledger = ledger
        self.came: dict[Name, list[tuple[float, str, int, Numbers]]] = {}
        self.left: dict[tuple[Name, Numbers], list[_Left]] = {}
        self.answered: dict[Name, list[float]] = {}
        self.refused: dict[Name, list[tuple[Numbers, float, str]]] = {}
        self._frozen = [
            (whom, at_s, at_s + for_s) for at_s, what, whom, for_s in world.fleet.history if what == "freeze"
        ]
        for frame in wiretap.arrived_at_gateways(world):
            for name, numbers in wiretap.batches_in(frame):
                self.came.setdefault(name, []).append((frame.at_s, frame.process, frame.port, numbers))
        for number, frame in enumerate(wiretap.written_to_brokers(world)):
            left = _Left(frame.at_s, number, frame.process, frame.link)
            for batch in wiretap.batches_in(frame):
                self.left.setdefault(batch, []).append(left)
        before: dict[tuple[str, str], tuple[float, float]] = {}
        for one in wiretap.produce_answers(world):
            connection = one.asked.link, one.asked.process
            decided_s = self._decided(one, *before.get(connection, (0.0, 0.0)))
            before[connection] = decided_s, one.answer.at_s
            for name, numbers in wiretap.batches_in(one.asked):
                if one.is_refusal:
                    self.refused.setdefault(name, []).append((numbers, decided_s, one.asked.process))
                else:
                    self.answered.setdefault(name, []).append(one.answer.at_s)

    def _decided(self, one: wiretap.Answered, before_s: float, answered_s: float) -> float:
        """Return when a process decided about a request. It decides in order, and answers in order.

        `before_s`, `answered_s`: when it decided about the request before on this connection, and answered that.
        """
        came_s, process = one.asked.at_s, one.asked.process
        if not one.is_refusal:
            (batch, *_) = wiretap.batches_in(one.asked)
            left = [left.at_s for left in self.left.get(batch, ()) if left.process == process]
            return min((at_s for at_s in left if at_s >= came_s), default=max(came_s, before_s))
        # An answer that waits leaves with the one before.
        is_late = one.answer.at_s > answered_s
        return one.answer.at_s if is_late else max(came_s, before_s)

    def last_left(self, late: Seen) -> _Left:
        """Return how it last left a gateway before it reached a broker."""
        left = self.left.get((late.name, late.numbers), ())
        return max((one for one in left if one.at_s <= late.at_s), default=_NEVER)

    def kept_back(self, name: Name, identity: tuple[int, int], before_s: float) -> tuple[float, str] | None:
        """Return when and where its last coming before that time was not handed on at once, if so."""
        came = [one for one in self.came.get(name, ()) if one[0] <= before_s and one[3][:2] == identity]
        if not came:
            return None
        came_s, process, port, numbers = came[-1]
        if self._was_deposed(node_at(port), name.partition, came_s):
            return None
        # A process that is stopped is a slow network: what waits in its kernel it has not been given.
        thawed_s = [
            until_s for whom, since_s, until_s in self._frozen if whom == process and since_s <= came_s
        ]
        given_s = max([came_s, *(until_s for until_s in thawed_s if until_s >= came_s)])
        for left in self.left.get((name, numbers), ()):
            if left.process == process and came_s <= left.at_s <= given_s + READ_WITHIN_S:
                return None
        return came_s, process

    def was_not_taken(self, name: Name, late: Seen) -> bool:
        """Return whether a broker that led no more answered the batch before the later one reached the new leader."""
        return any(
            seen.name == name
            and seen.error_code == NOT_LEADER
            and seen.numbers[:2] == late.numbers[:2]
            and seen.at_s < late.at_s
            for seen in self._ledger
        )

    def was_awaited_elsewhere(self, name: Name, late: Seen, passed_s: float) -> bool:
        """Return whether the batch was last sent to another node than the later one, and was never refused."""
        identity = late.numbers[:2]
        came = [one for one in self.came[name] if one[0] <= passed_s and one[3][:2] == identity]
        was_refused = any(
            numbers[:2] == identity and at_s <= passed_s for numbers, at_s, _ in self.refused.get(name, ())
        )
        return node_at(came[-1][2]) != late.node_id and not was_refused

    def left_in_order(self, name: Name, identity: tuple[int, int], passed: _Left) -> bool:
        """Return whether the batch left before a later one over its link, and was not answered until then."""
        before = [
            left
            for (of, numbers), places in self.left.items()
            if of == name and numbers[:2] == identity
            for left in places
            if left.link == passed.link and left.number < passed.number
        ]
        answered = self.answered.get(name, ())
        return bool(before) and not any(max(before).at_s <= at_s <= passed.at_s for at_s in answered)

    def was_lifted(self, name: Name, late: Seen, passed_s: float, through: str) -> bool:
        """Return whether the refusal of a batch was lifted by a batch below it, which its client had sent before.

        That one had gone to a broker that did not take it, and came back when the later one had been refused. An
        earlier batch that had been refused itself lifts nothing: the entry moves on to the next that was.
        """
        identity = late.numbers[:2]
        refused_s = min(
            (at_s for of, at_s in self._refused(name, through, passed_s) if of[:2] == identity), default=None
        )
        return refused_s is not None and any(
            (other.producer, other.partition) == (name.producer, name.partition)
            and other.number < name.number
            and numbers[:2] == identity
            and self._came_back_unrefused(other, numbers, refused_s, passed_s, through)
            for other, numbers in self.left
        )

    def _came_back_unrefused(
        self, name: Name, numbers: Numbers, since_s: float, until_s: float, through: str
    ) -> bool:
        """Return whether it left for a broker in that time, not for the first time, and was not refused in between."""
        before_s: float | None = None
        for left_s, _, process, _ in self.left[name, numbers]:
            if before_s is not None and since_s <= left_s <= until_s and process == through:
                refused = self._refused(name, through, left_s)
                if not any(of == numbers and before_s <= at_s for of, at_s in refused):
                    return True
            before_s = left_s
        return False

    def _refused(self, name: Name, process: str, until_s: float) -> list[tuple[Numbers, float]]:
        """Return as what, and when, a process was given the batch to refuse it, up to that time."""
        return [
            (numbers, at_s)
            for numbers, at_s, by in self.refused.get(name, ())
            if by == process and at_s <= until_s
        ]

    def _was_deposed(self, node_id: int, partition: int, at_s: float) -> bool:
        """Return whether the broker's last answer about the partition, before that time, was NOT_LEADER."""
        codes = [
            seen.error_code
            for seen in self._ledger
            if (seen.node_id, seen.partition) == (node_id, partition) and seen.at_s < at_s
        ]
        return bool(codes) and codes[-1] == NOT_LEADER


def _judge(world: World, stay: _Stay, late: Seen, written: set[Name]) -> None:
    """Raise ModelViolation if all that is missing before a batch was kept back by the gateway that let this one pass.

    Where something else is missing too, brokers alone would have got this batch too early as well.
    """
    passed = stay.last_left(late)
    passed_s, through = passed.at_s, passed.process
    sent = world.applications[late.name.producer].sent
    missing = [
        Name(batch.producer, batch.partition, batch.number)
        for batch in sent
        if batch.partition == late.partition and batch.number < late.name.number
        if batch.state is not State.FAILED or batch.done_s > late.at_s
    ]
    kept = [_kept_back(stay, name, late, passed) for name in missing if name not in written]
    if not kept or any(one is None for one in kept):
        return
    if all(one is not None and _knew(world, through, passed_s, *one) for one in kept):
        assert kept[0] is not None
        first = next(name for name in missing if name not in written)
        raise ModelViolation(
            f"batch {late.name.number} of {late.name.producer} to partition {late.partition} passed {through} at "
            f"{passed_s - BEGAN_S:.4f}, before number {first.number}, which {kept[0][1]} kept back at "
            f"{kept[0][0] - BEGAN_S:.4f}"
        )


def _knew(world: World, through: str, passed_s: float, kept_s: float, keeper: str) -> bool:
    """Return whether the process that let a batch pass had to know what another one had kept back before."""
    gateway, other = through, keeper
    if gateway == other:
        return True
    if not world.setup.shape.shares_ids or any(what != "start" for _, what, _, _ in world.fleet.history):
        return False
    is_late = any(step[1] in ("mode", "exempt") for step in world.schedule.steps)
    is_late |= world.setup.shape is Shape.ONE_PORT
    return not is_late or passed_s - kept_s > PROPAGATION_S


def _kept_back(stay: _Stay, name: Name, late: Seen, passed: _Left) -> tuple[float, str] | None:
    """Return when and where a gateway kept the missing batch back, if so and if nothing excuses it."""
    kept = stay.kept_back(name, late.numbers[:2], passed.at_s)
    if kept is None or stay.left_in_order(name, late.numbers[:2], passed):
        return None
    is_excused = late.error_code == OUT_OF_ORDER and (
        stay.was_not_taken(name, late)
        or stay.was_awaited_elsewhere(name, late, passed.at_s)
        or stay.was_lifted(name, late, passed.at_s, passed.process)
    )
    return None if is_excused else kept
