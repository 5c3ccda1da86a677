"""A process of a crowd's clients: its part of the producers, which it plays until it is told to end."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, NamedTuple

from pidgate import open_files
from pidgate.load.cluster import Cluster as Places
from pidgate.load.plan import Login, Plan
from pidgate.load.tally import Latency
from tests.crowd.plan import ROGUE_TRIES_PER_S, CrowdPlan
from tests.crowd.producers import Rogue, Shared, Steady, password_of

END: Final = ""
"""In place of the name of a phase: stop, and tell the outcome."""
_LOOK_S: Final = 0.5
_LAST_ANSWERS_S: Final = 60.0
_DEPLOYS_WITHIN_S: Final = 60.0


class Status(NamedTuple):
    """What a process says of itself, twice a second."""

    connected: int = 0
    acknowledged: int = 0
    refused: int = 0
    disconnects: int = 0
    tries: int = 0
    admitted: int = 0
    late_ms: int = 0
    cpu_s: float = 0.0


@dataclass
class Outcome:
    """What its producers were told, at the end. Moments are of the monotonic clock."""

    acknowledged: dict[str, int]
    tries: dict[str, int]
    """Of rogues, by lane."""
    admitted_at_s: dict[str, list[float]]
    latency: dict[str, Latency]
    """By phase."""
    refusals: Counter[str]
    ids_refused: Counter[int]
    late_s: float
    """How late this process was at most: what its producers saw besides is of gateway, brokers and machine."""
    problems: list[str] = field(default_factory=list)


def names_of(plan: CrowdPlan) -> tuple[list[str], list[str]]:
    """Users, and rogues."""
    return (
        [f"user-{number:04}" for number in range(plan.users)],
        [f"rogue-{number:02}" for number in range(plan.rogues)],
    )


class Clients:
    """The process as its parent sees it."""

    def __init__(self, plan: CrowdPlan, part: int, servers: str, topic: str, partitions: int) -> None:
        fork = multiprocessing.get_context("spawn")
        self._pipe, theirs = fork.Pipe()
        arguments = (theirs, plan, part, servers, topic, partitions)
        self._process = fork.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.status = Status()

    def look(self) -> Status:
        """Return the newest status. Raises EOFError when the process has ended."""
        while self._pipe.poll():
            self.status = self._pipe.recv()
        return self.status

    def begin(self, phase: str, every_s: float | None = None) -> None:
        """Count latencies for a phase, with another pace if it is given."""
        self._pipe.send((phase, every_s))

    def outcome(self) -> Outcome:
        """Wait for it; `END` has begun. Raises EOFError when the process has failed."""
        while not isinstance(told := self._pipe.recv(), Outcome):
            self.status = told
        self._process.join()
        return told


def _run(pipe: Pipe, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    open_files.allow_most()
    asyncio.run(_play(pipe, *arguments))


async def _play(pipe: Pipe, plan: CrowdPlan, part: int, servers: str, topic: str, partitions: int) -> None:
    users, _ = names_of(plan)
    host, port = servers.split(":")
    login = Login(users[0], password_of(users[0]))
    places = Places(Plan(bootstrap=((host, int(port)),), clients={}, topic=topic, login=login))
    await places.open()
    shared = Shared(places, topic, partitions, random.Random(part + 1))
    cast = _Cast(plan, part, shared)
    latency: dict[str, Latency] = {}
    while True:
        while pipe.poll():
            phase, every_s = pipe.recv()
            if every_s is not None:
                for one in cast.steady:
                    one.pace(every_s)
            if phase == END:
                pipe.send(await cast.end(latency))
                return
            shared.latency = latency.setdefault(phase, Latency())
        pipe.send(await cast.look())


class _Cast:
    """The producers of one process. All of them start in turn over the ramp."""

    def __init__(self, plan: CrowdPlan, part: int, shared: Shared) -> None:
        users, rogues = names_of(plan)
        dice, loop = random.Random(0), asyncio.get_running_loop()
        began_s = loop.time()
        ramped_s = began_s + plan.ramp_s
        deployed_s = {
            user: ramped_s + dice.uniform(0, plan.duration_s * 0.9) for user in users[: plan.deployments]
        }
        busy = set(dice.sample(range(plan.connections), plan.busy))
        lane_s = plan.each / ROGUE_TRIES_PER_S
        self._shared = shared
        self.steady: list[Steady] = []
        self.rogues: list[Rogue] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._rogue_tasks: list[asyncio.Task[None]] = []
        for place in range(part, plan.connections, plan.processes):
            number, of_user = divmod(place, plan.users)
            one = Steady(shared, users[of_user], number, every_s=1.0 if place in busy else plan.every_s)
            if users[of_user] in deployed_s:
                one.deploy_s = deployed_s[users[of_user]] + shared.dice.uniform(0, _DEPLOYS_WITHIN_S)
            self.steady.append(one)
            self._tasks.append(loop.create_task(one.live(began_s + place / plan.connects_per_s)))
        for place in range(part, plan.rogues * plan.each, plan.processes):
            number, of_user = divmod(place, plan.rogues)
            rogue = Rogue(shared, rogues[of_user], number, every_s=lane_s, keeps=of_user % 2 == 1)
            self.rogues.append(rogue)
            self._rogue_tasks.append(loop.create_task(rogue.live(ramped_s + shared.dice.uniform(0, lane_s))))
        self.late_s = 0.0

    async def look(self) -> Status:
        """Wait a moment, wake those who were cut off, and say how it stands."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        await asyncio.sleep(_LOOK_S)
        late_s = loop.time() - asked_s - _LOOK_S
        self.late_s = max(self.late_s, late_s)
        for one in self.steady:
            one.wake_if_cut_off()
        shared = self._shared
        return Status(
            connected=sum(one.is_connected for one in self.steady),
            acknowledged=shared.acknowledged,
            refused=shared.refusals.total(),
            disconnects=shared.disconnects,
            tries=sum(one.tries for one in self.rogues),
            admitted=sum(len(one.admitted_at_s) for one in self.rogues),
            late_ms=round(late_s * 1_000),
            cpu_s=_cpu_s(),
        )

    async def end(self, latency: dict[str, Latency]) -> Outcome:
        """Stop all. A record in flight gets some time."""
        for task in self._rogue_tasks:
            task.cancel()
        loop, problems = asyncio.get_running_loop(), []
        give_up_s = loop.time() + _LAST_ANSWERS_S
        waiting = dict(zip(self._tasks, self.steady, strict=True))
        while waiting and loop.time() < give_up_s:
            for task, one in list(waiting.items()):
                if not one.is_sending:
                    task.cancel()
                    del waiting[task]
            await asyncio.sleep(0.05)
        if waiting:
            problems.append(f"{len(waiting)} records had no answer {_LAST_ANSWERS_S:g} s after the end")
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, *self._rogue_tasks, return_exceptions=True)
        problems += [f"a producer failed: {error!r}" for error in ended if isinstance(error, Exception)][:3]
        for one in self.steady:
            one.close()
        for rogue in self.rogues:
            rogue.close()
        shared = self._shared
        return Outcome(
            acknowledged={one.name: one.acknowledged for one in self.steady},
            tries={one.name: one.tries for one in self.rogues},
            admitted_at_s={one.name: one.admitted_at_s for one in self.rogues},
            latency=latency,
            refusals=shared.refusals,
            ids_refused=shared.tally.ids_refused,
            late_s=self.late_s,
            problems=[*problems, *shared.faults[:5]],
        )


def _cpu_s() -> float:
    times = os.times()
    return round(times.user + times.system, 2)
