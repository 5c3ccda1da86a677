"""What model clients sent through a simulated gateway, and what came back: a script to be played to a real one.

One gateway before one broker, no login, no transactions. Tokens do not come back while a script is played, so that
nothing depends on how fast a machine is; what is refused passes when the mode changes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event as LogEvent
from pidgate.protocol.messages import INIT_PRODUCER_ID
from tests.simulator import steps
from tests.simulator.brokers.caller import Caller
from tests.simulator.ledger import parsed
from tests.simulator.link import Mark
from tests.simulator.machine import Machine
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Step, Weather
from tests.simulator.world import World

if TYPE_CHECKING:
    from tests.simulator.brokers.entries import Entry

PARTITIONS: Final = 2
WINDOW_MS: Final = 3_600_000
LENGTH_MS: Final = 900
TAIL_S: Final = 1.2
"""Behind the last step: what is refused comes back once more, and passes."""
CLOSED_S: Final = 0.5
CLEAR_MS: Final = 30
"""From a change, or a cut, to whatever it could race with in reality."""
CUT, MODE = "cut", "mode"


@dataclass(slots=True)
class Event:
    """A whole request that reached the gateway, an answer that reached its client, an end, or a change of mode.

    `frame`: without its size prefix; empty for an end. `link`: empty for a change.
    """

    at_s: float
    link: str
    is_answer: bool = False
    frame: bytes = b""
    is_end: bool = False
    is_enforced: bool | None = None

    @property
    def port(self) -> int:
        """At which the connection was made."""
        return int(self.link.rpartition(":")[2].split()[0])


@dataclass(slots=True)
class Recording:
    """`events` in the order of time; `logs`: of each partition what its log holds in the end."""

    schedule: Schedule
    topic_id: bytes
    events: list[Event] = field(default_factory=list)
    logs: list[list[Entry]] = field(default_factory=list)

    @property
    def is_fit(self) -> bool:
        """Whether nothing in it would be a race in reality.

        A change, a cut, or the first batch of an id of another client, too near to what is sent then; a change too near
        to the end of a mute.
        """
        produces = [one for one in self.events if one.frame[:2] == b"\0\0" and not one.is_answer]
        asked = {(one.link, one.frame[4:8]) for one in produces}
        changes = [one for one in self.events if one.is_enforced is not None]
        touchy = [*changes, *(one for one in self.events if one.is_end and not one.is_answer)]
        known: set[int] = set()
        for produce in produces:
            ids = {numbers.producer_id for _, numbers in parsed(produce.frame)[1]}
            if ids - known:
                known |= ids
                touchy.append(produce)
        return not any(
            one is not other
            and (one.is_end or one.link != other.link)
            and abs(one.at_s - other.at_s) < CLEAR_MS / 1_000
            for one in touchy
            for other in produces
        ) and not any(
            # What was held behind a mute is decided about when the mute ends, just before its answer.
            abs(change.at_s - answer.at_s) < CLEAR_MS / 1_000
            for change in changes
            for answer in self.events
            if answer.is_answer and (answer.link, answer.frame[:4]) in asked
        )


def scripted(seed: int) -> Schedule:
    """Return the schedule of a seed: pipelines of new ids, more of them than there are tokens."""
    random = Random(f"{seed}/recording")
    families = random.choices(
        ("java", "java", "librdkafka", "kafka-python", "franz-go"), k=random.choice((2, 3))
    )
    clients = tuple(ClientSetup(f"{family}-{number + 1}", family) for number, family in enumerate(families))
    quotas = QuotaSetup(
        rate=1, window_ms=WINDOW_MS, burst=random.choice((0.01, 0.01, 1.0)), max_throttle_ms=150
    )
    setup = Setup(brokers=1, partitions=PARTITIONS, weather=Weather.EVEN, quotas=quotas, clients=clients)
    made: list[Step] = []
    for client in clients:
        at_ms = random.randrange(LENGTH_MS // 2)
        for _ in range(random.randint(1, 4)):
            made.append((at_ms, "send", client.name, random.randrange(PARTITIONS), random.choice((1, 2, 5))))
            at_ms += random.choice((1, 2, 40, 160, 300))
    for _ in range(random.choice((0, 0, 1))):
        made.append((random.randrange(LENGTH_MS), CUT, random.choice(clients).name, random.randrange(2)))
    if random.random() < 0.7:
        made.append((LENGTH_MS, MODE, None, False))
    return Schedule(seed, setup, tuple(sorted(made, key=lambda step: step[0])))


def recorded(schedule: Schedule) -> Recording:
    """Play it, and return what was sent and answered, up to a moment after the last step."""
    with Machine(schedule.seed) as machine:
        world = World(schedule, machine)
        return machine.loop.run(_main(world))


async def _main(world: World) -> Recording:
    _warm_up(world)
    await world.start()
    began_s = world.loop.time()
    found = Recording(world.schedule, world.cluster.topics.by_name[world.topic].topic_id)
    cut: set[str] = set()
    for step in world.schedule.steps:
        await asyncio.sleep(max(0.0, began_s + step[0] / 1_000 - world.loop.time()))
        if step[1] == MODE:
            found.events.append(Event(world.loop.time(), "", is_enforced=step[3]))
        if step[1] == CUT and (links := world.network.links(step[2])):
            cut.add(links[step[3] % len(links)].name)
        steps.apply(world, step)
    await asyncio.sleep(TAIL_S)
    world.crash_all()
    ended_s = world.loop.time()
    await asyncio.sleep(CLOSED_S)
    found.events += [event for event in _events(world, cut) if event.at_s < ended_s]
    found.events.sort(key=lambda event: event.at_s)
    for index in range(PARTITIONS):
        found.logs.append(list(world.cluster.partition(world.topic, index).log))
    assert not world.machine.logged(LogEvent.UNEXPECTED_ERROR)
    return found


def _warm_up(world: World) -> None:
    """A block of producer ids is there, as at a broker that has run for a while."""
    caller = Caller(world.cluster)
    while caller.call(INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout_ms": 1})[
        "error_code"
    ]:
        pass


def _events(world: World, cut: set[str]) -> Iterator[Event]:
    """Yield what reached gateway and clients, in the order of time. `cut`: links that the network ended."""
    streams: dict[tuple[str, bool], bytearray] = {}
    ended: set[str] = set()
    for at_s, link, reached, what in world.network.trace or ():
        client = link.split(" -> ")[0]
        if client not in world.applications or link in ended:
            continue
        is_answer = reached == client
        if isinstance(what, Mark):
            ended.add(link)
            # The network ends both sides; here it is the client's that ends the other.
            yield Event(at_s, link, is_answer and link not in cut, is_end=True)
            continue
        stream = streams.setdefault((link, is_answer), bytearray())
        stream += what
        while len(stream) >= 4:
            (size,) = struct.unpack_from(">i", stream)
            if len(stream) < 4 + size:
                break
            yield Event(at_s, link, is_answer, bytes(stream[4 : 4 + size]))
            del stream[: 4 + size]
