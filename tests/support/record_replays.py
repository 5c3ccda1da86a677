"""Recordings for the replay: every refusal is told, rates are low, and what makes a replay hard does happen.

Users by what is set for them: patient (waits until it is admitted), impatient (rogue, never comes back), steady
(refreshed slice by slice), exempt, watched (observe; enforced from the reload on), blocked, free (no limit).
A filter that takes one new id in a million for a known one makes decisions follow from the events alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.recorded_stage import LastingProducer, Scenario, Stage, password_of

USERS = frozenset(
    f"{stem}-{kind}"
    for kind in ("one", "fleet")
    for stem in ("patient", "impatient", "steady", "exempt", "watched", "blocked", "free")
)
PHASE_S = 18.0


def _quotas(kind: str) -> Mapping[str, Any]:
    return {
        "mode": "enforce",
        "default": {"producer_ids_rate": 5},
        "producer_ids": {
            "window": "6s",
            "remember": "24s",
            "max_throttle": "1500ms",
            "transactional": "enforce",
        },
        "users": {
            f"patient-{kind}": {"producer_ids_rate": 4, "owner": "team-orders"},
            f"impatient-{kind}": {"producer_ids_rate": 3, "owner": "team-etl"},
            f"exempt-{kind}": {"producer_ids_rate": 1, "exempt": ["producer_ids"]},
            f"watched-{kind}": {"producer_ids_rate": 2, "mode": "observe"},
            f"blocked-{kind}": {"producer_ids_rate": 0},
        },
    }


def _reloaded(kind: str, quotas: dict[str, Any]) -> None:
    quotas["users"][f"patient-{kind}"]["producer_ids_rate"] = 7
    quotas["users"][f"impatient-{kind}"]["producer_ids_rate"] = 1.5
    quotas["users"][f"watched-{kind}"]["mode"] = "enforce"


class _Crowd:
    """All users of one recording, each with clients of its own, over so many gateways."""

    def __init__(self, stage: Stage, kind: str, gateways: int) -> None:
        self._stage = stage
        self._kind = kind
        self._gateways = gateways
        self._dice = random.Random(kind)
        self._number = 0

    def producer(self, user: str, place: str = "10") -> LastingProducer:
        self._number += 1
        return LastingProducer(
            self._stage,
            f"{user}-{self._kind}",
            f"{user}-{self._number}",
            gateway=self._number % self._gateways,
            from_host=f"127.0.{place}.{1 + self._number % 3}",
        )

    async def one_batch(self, user: str, *, give_up_s: float, place: str = "10") -> None:
        """An id that is used for one batch; refused, it may come back through another gateway."""
        producer = self.producer(user, place)
        try:
            if not await producer.send(give_up_s=give_up_s / 3):
                await producer.move_to((producer.gateway + 1) % self._gateways)
                await producer.send(give_up_s=give_up_s)
        finally:
            await producer.close()

    async def arrivals(self, user: str, per_s: float, for_s: float, give_up_s: float) -> None:
        """Ids that come at random, each a client of its own."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + for_s
        async with asyncio.TaskGroup() as group:
            while loop.time() < end_s:
                group.create_task(self.one_batch(user, give_up_s=give_up_s))
                await asyncio.sleep(self._dice.expovariate(per_s))

    async def lasting(self, user: str, for_s: float, pause_s: float) -> None:
        """One id through all phases, to two partitions, each through the next gateway."""
        producers = self.producer(user)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + for_s
        try:
            while loop.time() < end_s:
                await producers.send(partition=producers.gateway)
                await asyncio.sleep(pause_s * self._dice.uniform(0.5, 1.5))
                if self._gateways > 1 and self._dice.random() < 0.3:
                    await producers.move_to((producers.gateway + 1) % self._gateways)
        finally:
            await producers.close()


async def _real_client(stage: Stage, user: str, client: str, number: int) -> None:
    """One of Kafka's clients with several batches on their way, from one gateway and until all are through."""
    load = Load(
        bootstrap_servers=stage.gateway(number % len(stage.fleet.gateways)).bootstrap_servers,
        topic=stage.topic,
        records=60,
        partitions=2,
        number=number,
        records_per_s=20.0,
        login=Login(username=user, password=password_of(user), mechanism="PLAIN"),
    )
    await asyncio.to_thread(ClientProcess.produce(client, load).wait)


async def _phase(crowd: _Crowd) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.arrivals("patient", 1.6, PHASE_S, 30.0))
        group.create_task(crowd.arrivals("impatient", 3.0, PHASE_S, 0.3))
        group.create_task(crowd.arrivals("exempt", 1.0, PHASE_S, 5.0))
        group.create_task(crowd.arrivals("watched", 1.0, PHASE_S, 2.0))
        group.create_task(crowd.arrivals("blocked", 0.3, PHASE_S, 2.0))
        group.create_task(crowd.arrivals("free", 0.8, PHASE_S, 5.0))


async def _one_gateway(stage: Stage) -> None:
    crowd = _Crowd(stage, "one", 1)
    await _through_all(stage, crowd, "one", 1)


async def _fleet(stage: Stage) -> None:
    crowd = _Crowd(stage, "fleet", 2)
    await _through_all(stage, crowd, "fleet", 2)


async def _through_all(stage: Stage, crowd: _Crowd, kind: str, gateways: int) -> None:
    async with asyncio.TaskGroup() as group:
        for pause_s in (0.4, 2.0, 7.0, 27.0):
            # The last one is silent for longer than it is remembered.
            group.create_task(crowd.lasting("steady", 4 * PHASE_S, pause_s))
        for number, client in enumerate(("confluent-kafka", "kafka-python", "aiokafka", "confluent-kafka")):
            group.create_task(_real_client(stage, f"patient-{kind}", client, number))
        await _phase(crowd)
        for number in range(gateways):
            await stage.reload(number, lambda quotas: _reloaded(kind, quotas))
        await _phase(crowd)
        going_on = group.create_task(_phase(crowd))
        await asyncio.sleep(1.0)
        await stage.restart(gateways - 1)
        await going_on


SCENARIOS: Mapping[str, Scenario] = {
    "replay-one-gateway": Scenario(
        about="One gateway that enforces low rates: refusals, waiting, a reload and a restart",
        quotas=_quotas("one"),
        play=_one_gateway,
        more_users=USERS,
    ),
    "replay-fleet": Scenario(
        about="Two gateways of one fleet: ids come through both, both reload, one restarts while the other goes on",
        quotas=_quotas("fleet"),
        play=_fleet,
        more_users=USERS,
        gateways=2,
    ),
}
