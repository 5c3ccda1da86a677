"""Steps of a schedule as plain values: what can happen next in a world, and how it is made to happen.

One list serves the random schedules, the exhaustive search and the schedules played to a real broker.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.unit.gateway.model.clients import JavaProducer, LibrdkafkaProducer, Producer
from tests.unit.gateway.model.exchange import Exchange
from tests.unit.gateway.model.wire import TOPIC, TOPIC_ID
from tests.unit.gateway.model.world import USER, AdmissionFactory, World, real_admission

Step = tuple[Any, ...]
"""A method of the world and its arguments, with names in place of producers and channels."""

WINDOW_MS: Final = 2_000
ONE_PER_WINDOW: Final = Quotas(
    mode=Mode.ENFORCE,
    producer_ids=ProducerIdSettings(window_ms=WINDOW_MS, burst=Fraction(1, 100), max_throttle_ms=1_000),
    default=UserQuota.per_window(1),
)
"""A bucket of hardly anything: one id passes, then one every two seconds. Throttles last a second at most."""

PAUSES_MS: Final = (1, 50, 100, 101, 500, 1_000, 3_000)
LONG_PAUSE_MS: Final = 310_000
"""Longer than refused ids are watched."""

ROGUES_FIRST: Final = 3

KINDS: Final[dict[str, type[Producer]]] = {kind.kind: kind for kind in (JavaProducer, LibrdkafkaProducer)}


def apply(world: World, step: Step) -> None:
    """Make it happen. A step that names what is gone does nothing, so that schedules can be shortened."""
    name, *args = step
    if name in ("append", "answer", "read", "cut"):
        channel = world.channels.get((args[0], args[1]))
        waiting = {"append": "to_broker", "answer": "from_broker", "read": "to_client"}
        if channel is not None and (name == "cut" or getattr(channel, waiting[name])):
            getattr(world, name)(channel)
    elif name in ("send", "expire"):
        producer = next(producer for producer in world.producers if producer.name == args[0])
        if name == "expire" or world.sendable(producer, args[1]):
            getattr(world, name)(producer, *args[1:])
    elif name in ("mode", "exempt") and world.exchange is not None and world.exchange.is_cut:
        pass  # Nobody could know what was refused elsewhere: open (docs/decisions/0004).
    elif name == "mode":
        world.change_quotas(f"{args[0]}", mode=Mode(args[0]))
    elif name == "exempt":
        world.change_quotas(f"exempt {args[0]}", users={USER: UserQuota.per_window(exempt=args[0])})
    elif name == "rate":
        world.change_quotas(f"{args[0]} per window", default=UserQuota.per_window(args[0]))
    elif name != "move" or world.may_move(*args):
        getattr(world, name)(*args)


def sends(world: World) -> list[Step]:
    """Every request that a client may send now: one partition, or all that are ready."""
    steps: list[Step] = []
    for producer in world.producers:
        for node in range(len(world.route)):
            ready = world.sendable(producer, node)
            steps += [("send", producer.name, node, (partition,)) for partition in ready]
            if len(ready) > 1 and producer.partitions_per_request > 1:
                steps.append(("send", producer.name, node, tuple(ready)))
    return steps


def deliveries(world: World) -> list[Step]:
    """Whatever is on its way and could arrive next."""
    steps: list[Step] = []
    for (name, node), channel in world.channels.items():
        if channel.to_broker:
            steps.append(("append", name, node))
        if channel.from_broker:
            steps.append(("answer", name, node))
        if channel.to_client:
            steps.append(("read", name, node))
    if world.state_owner is not None:
        steps += [("decide",)] if world.state_owner.asked else []
        steps += [("arrive", worker) for worker, sent in enumerate(world.state_owner.sent) if sent]
    return steps


def moves(world: World) -> list[Step]:
    """Leaders that may move."""
    nodes, partitions = range(len(world.route)), range(len(world.leader))
    return [
        ("move", partition, node)
        for partition in partitions
        for node in nodes
        if world.may_move(partition, node)
    ]


def accidents(world: World) -> list[Step]:
    """What happens seldom."""
    processes = range(len(world.processes))
    steps: list[Step] = [("cut", *key) for key in world.channels]
    steps += [("restart", process) for process in processes]
    steps += [("rogue", process) for process in processes]
    steps += [
        ("expire", producer.name, partition)
        for producer in world.producers
        for partition in range(len(producer.partitions))
    ]
    steps += [("mode", mode.value) for mode in Mode]
    if world.exchange is not None:
        steps += [("heal_topic",) if world.exchange.is_cut else ("cut_topic",)] * 3
    if world.state_owner is not None:
        steps.append(("restart_state_owner",))
    steps += [("exempt", True), ("exempt", False), ("rate", 1), ("rate", 5)]
    return steps


@dataclass(frozen=True, slots=True)
class Setup:
    """Who is there when a schedule begins: for each producer its kind and its batches' record counts by partition."""

    producers: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    route: tuple[int, ...] = (0, 0)

    def world(
        self,
        admission: AdmissionFactory = real_admission,
        quotas: Quotas = ONE_PER_WINDOW,
        *,
        producer_ids: Sequence[int] = (1_000, 1_001),
        name: str = "p",
        topic: bytes = TOPIC,
        topic_id: bytes = TOPIC_ID,
        exchange: Exchange | None = None,
        has_state_owner: bool = False,
    ) -> World:
        """The world at its beginning; producer ids and topic may be those of a real cluster."""
        producers: list[Producer] = []
        for number, (kind, batches) in enumerate(self.producers):
            producer = KINDS[kind](f"{name}{number}", producer_ids[number], partitions=len(batches))
            for partition, records in enumerate(batches):
                for count in records:
                    producer.add(partition, count)
            producers.append(producer)
        return World(
            quotas,
            producers,
            route=self.route,
            admission=admission,
            topic=topic,
            topic_id=topic_id,
            exchange=exchange,
            has_state_owner=has_state_owner,
        )


def random_setup(chooser: random.Random, routes: tuple[tuple[int, ...], ...]) -> Setup:
    """One or two producers of either kind with some batches for two partitions."""

    def batches() -> tuple[int, ...]:
        return tuple(chooser.choice((1, 1, 3)) for _ in range(chooser.randint(0, 4)))

    producers = tuple(
        (chooser.choice(tuple(KINDS)), (batches(), batches())) for _ in range(chooser.choice((1, 1, 2)))
    )
    return Setup(producers, chooser.choice(routes))


def known_for_long(world: World, chooser: random.Random) -> Iterator[Step]:
    """Producers send a first batch of some partitions, it is answered, and a long time passes."""
    for step in sends(world):
        if chooser.random() < 0.5:
            yield step
    while steps := deliveries(world):
        yield steps[0]
    yield ("advance", LONG_PAUSE_MS)


def random_steps(world: World, chooser: random.Random, count: int) -> Iterator[Step]:
    """That many steps, likely ones often; the caller applies each before it asks for the next.

    Half of the schedules of workers begin with ids that have been known for long.
    """
    if world.state_owner is not None and chooser.random() < 0.5:
        yield from known_for_long(world, chooser)
    for _ in range(chooser.randint(0, ROGUES_FIRST)):
        yield ("rogue", chooser.randrange(len(world.processes)))
    for _ in range(count):
        steps = 3 * sends(world) + 2 * deliveries(world)
        steps += [("advance", chooser.choice(PAUSES_MS))] * 2
        if chooser.random() < 0.3:
            steps += moves(world)
        if chooser.random() < 0.2:
            steps += [chooser.choice(accidents(world))] * 2
        if chooser.random() < 0.05:
            steps.append(("advance", LONG_PAUSE_MS))
        yield chooser.choice(steps)


def play(setup: Setup, steps: Iterable[Step], admission: AdmissionFactory = real_admission) -> World:
    """The schedule from its beginning to where everything is done. Raises ModelViolation."""
    world = setup.world(admission)
    for step in steps:
        apply(world, step)
    world.drain()
    return world
