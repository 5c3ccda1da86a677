"""The world of a schedule: brokers, gateways and applications on one simulated loop, as its setup says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pidgate.gateway.lane.lanes import Lanes
from pidgate.gateway.proxy.connection import Shared
from pidgate.gateway.proxy.reading import Socket
from pidgate.load.plan import Address, Login
from tests.simulator import logs
from tests.simulator.admissions import MALLORY
from tests.simulator.applications import Application
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.replies import Reply
from tests.simulator.brokers.server import Brokers
from tests.simulator.brokers.sessions import Listener, Session
from tests.simulator.brokers.timers import Delays
from tests.simulator.clients.batches import Batch
from tests.simulator.clients.hostile import Hostile
from tests.simulator.clients.reader import Reader
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import READINGS, Reading
from tests.simulator.fleet import Fleet
from tests.simulator.link import Weather as LinkWeather
from tests.simulator.machine import Machine
from tests.simulator.process import Process
from tests.simulator.schedule import ClientSetup, Schedule, Shape, Weather

TOPIC: Final = "model"
PASSWORD: Final = "secret"
USERS: Final = ("alice", "bob")
KEPT_FRAME_BYTES: Final = 100
"""In place of the gateway's, where it passes on what it may: every Produce is larger."""
FIRST_IDS: Final = (1_000, 1_001, 2_000, 2_001)
"""Producer ids that clients are likely to have."""
LONG_S: Final = 310.0
"""Longer than ids are watched."""
ROGUE_S: Final = 3.0
"""How long a rogue keeps trying."""

_WEATHERS: Final = {
    Weather.CALM: LinkWeather(),
    Weather.SLOW: LinkWeather(shortest_delay_s=0.01, longest_delay_s=0.15),
    Weather.CHOPPED: LinkWeather(recut=0.7),
    Weather.NARROW: LinkWeather(capacity_bytes=400),
    Weather.EVEN: LinkWeather(shortest_delay_s=0.000_5, longest_delay_s=0.000_5, recut=0.0),
}


@dataclass(slots=True)
class Taken:
    """A Produce that a broker acted on."""

    at_s: float
    node_id: int
    connection_id: int
    frame: bytes
    reply: Reply


class WatchedCluster(ModelCluster):
    """Keeps each Produce that arrives, with what became of it."""

    taken: list[Taken]
    now_s: Any

    def handle(self, session: Session, frame: bytes, now_ms: int) -> Reply:
        if frame[:2] != b"\0\0" or session.principal == MALLORY:
            return super().handle(session, frame, now_ms)
        taken = Taken(self.now_s(), session.node_id, session.connection_id, frame, None)
        self.taken.append(taken)
        taken.reply = super().handle(session, frame, now_ms)
        return taken.reply


class World:
    """`start`, then steps (steps.py), then the checks. `is_told`: lines for a story are kept."""

    topic = TOPIC

    def __init__(self, schedule: Schedule, machine: Machine, *, is_told: bool = False) -> None:
        self.machine = machine
        self.schedule = schedule
        self.setup = schedule.setup
        self.lines: list[tuple[float, str]] = []
        self.loop = machine.loop
        self.network = self.loop.network
        self.network.trace, self.network.written = [], []
        self.network.weather = _WEATHERS[self.setup.weather]
        self.trace = self.note if is_told else None
        self._is_told = is_told
        self.idle: list[int] = []
        """Steps that are known to have done nothing."""
        self.steps_began_s = 0.0
        self.unwritten: list[Batch] = []
        """Batches that were in no log at the moment they were acknowledged."""
        self.changes = 0
        """Changes of byte rates so far."""
        self.unrelieved: list[str] = []
        """Who waits in spite of a change that was to end the wait."""
        if self.setup.passes_on:
            machine.patches.setattr(Shared, "kept_frame_bytes", KEPT_FRAME_BYTES)
        if self.setup.lend_after is not None:
            machine.patches.setattr(Lanes, "lend_after", self.setup.lend_after)
            machine.patches.setattr(Lanes, "worth_requests", 0)
        if self.setup.lanes_only_look:
            machine.patches.setattr(Socket, "has_tls", True)
        self._addresses = self._rogues = 0
        self._starting: list[asyncio.Task[None]] = []
        self._hostile: list[Process] = []
        self.cluster = self._cluster()
        self.applications: dict[str, Application] = {}
        self.readers: dict[str, Reader] = {}
        self.read_to: list[int] = []
        """Offset of each partition up to which readers are waited for, set when they are."""
        self.fleet = Fleet(self)
        self.brokers: Brokers

    def _cluster(self) -> WatchedCluster:
        setup = self.setup
        users = dict.fromkeys((*USERS, MALLORY), PASSWORD) if setup.has_login else None
        chance = Random(f"{self.schedule.seed}/replication")
        delays = Delays()
        if setup.is_replicated_late:
            delays.replication_ms = lambda: int(chance.random() * 30)
            delays.markers_ms = lambda: int(chance.random() * 30)
        cluster = WatchedCluster(
            setup.brokers,
            {TOPIC: setup.partitions, MALLORY: 2},
            listeners=(Listener(users=users),),
            delays=delays,
            first_producer_id=1_000,
            now_ms=int(self.loop.time() * 1_000),
        )
        cluster.taken, cluster.now_s = [], self.loop.time
        return cluster

    # ---- for those who take part -------------------------------------------------------------------------

    def note(self, line: str) -> None:
        """Keep a line of the story."""
        if self._is_told:
            self.lines.append((self.loop.time(), line))

    def acknowledged(self, batch: Batch) -> None:
        """Look whether a batch is in the log that an application has just been told so of."""
        if logs.is_missing(self, batch):
            self.unwritten.append(batch)

    def next_ip(self) -> str:
        self._addresses += 1
        return f"10.0.0.{self._addresses}"

    def login(self, user: str) -> Login | None:
        return Login(user, PASSWORD, "PLAIN") if self.setup.has_login else None

    def bootstrap(self, gateway: int) -> tuple[Address, ...]:
        """Return where a client begins."""
        if self.setup.shape is Shape.DIRECT:
            return tuple(self.cluster.address(node_id) for node_id in self.cluster.nodes.ids)
        return self.fleet.addresses(gateway)

    # ---- the beginning -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Have everything run, and every client there."""
        self.brokers = Brokers(self.cluster)
        for node_id in self.cluster.nodes.ids:
            await self.serve(node_id)
        await self.fleet.start()
        for client in self.setup.clients:
            application = self.applications[client.name] = Application(self, client)
            application.start()
        for number, reading in enumerate(self.setup.readers):
            self._start_reader(f"reader-{number + 1}", number, READINGS[reading])

    def _start_reader(self, name: str, gateway: int, reading: Reading) -> None:
        process = self.loop.process(name, ip=self.next_ip())
        settings = Settings(bootstrap=self.bootstrap(gateway), topic=TOPIC, login=self.login(USERS[0]))
        reader = self.readers[name] = process.call(Reader, name, settings, self.setup.partitions, reading)
        process.spawn(reader.run())

    async def serve(self, node_id: int) -> None:
        """Have a node listen, in a new process."""
        process = self.loop.process(f"broker-{node_id}")
        await process.spawn(self.brokers.listen(node_id))

    async def grow_old(self) -> None:
        """Have every client write to the partitions that are not fresh; then more time passes than ids are watched."""
        written = max(1, self.setup.partitions - self.setup.fresh_partitions)
        for application in self.everybody:
            parts = tuple((partition, 1) for partition in range(written))
            application.transact(parts, commits=True)
            for partition, count in parts:
                application.send(partition, count)
        is_done = False
        while not is_done:
            await asyncio.sleep(0.1)
            # The clock jumps: a connection that is just being opened would be too late with its login.
            is_done = all(application.is_idle for application in self.everybody) and not any(
                connection.awaits_login
                for gateway in self.fleet.gateways
                for connection in gateway.connections
            )
        self.note(f"{LONG_S:.0f} s pass")
        self.loop.now_s += LONG_S

    # ---- what happens ------------------------------------------------------------------------------------

    @property
    def everybody(self) -> list[Application]:
        """All applications there were, in the order of their beginning."""
        return list(self.applications.values())

    def rogue(self, user: str) -> None:
        """Have one more client come that brings a new id, and is gone soon."""
        self._rogues += 1
        setup = ClientSetup(f"rogue-{self._rogues}", "java", user, gateway=self._rogues % 2)
        rogue = self.applications[setup.name] = Application(self, setup)
        rogue.start()
        rogue.send(self._rogues % self.setup.partitions, 1)
        self.loop.call_later(ROGUE_S, rogue.crash)

    def hostile(self, acts: int) -> None:
        """Have a hostile client do so much, with a login of its own; it is gone when the faults end."""
        name = f"{MALLORY}-{len(self._hostile) + 1}"
        process = self.loop.process(name, ip=self.next_ip())
        self._hostile.append(process)
        settings = Settings(
            bootstrap=self.bootstrap(len(self._hostile)), topic=MALLORY, login=self.login(MALLORY)
        )
        random = Random(f"{self.schedule.seed}/{name}")
        client = process.call(Hostile, name, settings, random, self.trace)
        client.others_ids = [*FIRST_IDS]
        process.spawn(client.run(acts))

    def start_broker(self, node_id: int) -> None:
        """Have a node run again that was stopped."""
        if node_id in self.cluster.nodes.down:
            self.cluster.start(node_id)
            self._starting.append(self.loop.create_task(self.serve(node_id)))

    async def end_faults(self) -> None:
        """Have everything work from now on."""
        self.network.heal()
        for node_id in self.cluster.nodes.ids:
            self.network.refuse(self.cluster.address(node_id), False)
            self.start_broker(node_id)
        await asyncio.gather(*self._starting)
        await self.fleet.end_faults()
        for process in self._hostile:
            self.loop.kill(process)
        for name, application in self.applications.items():
            if name.startswith("rogue-"):
                application.crash()

    def crash_all(self) -> None:
        """Have no client any more."""
        for application in self.everybody:
            application.crash()
            self.loop.kill(application.process)
        for name in self.readers:
            self.loop.kill(self.loop.processes[name])

    def end_cut_off(self) -> None:
        """Have no client any more that was closed, though it may still be busy with it."""
        for application in self.everybody:
            if application.is_gone:
                self.loop.kill(application.process)

    async def stop(self) -> None:
        """End politely."""
        await self.fleet.drain()
