"""The present of a large gateway: a draw is made in short steps, and is bounded."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Final

import pytest

from pidgate.gateway.present.connections import Connections
from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.present.users import Users
from pidgate.gateway.present.waits import Waits
from pidgate.gateway.proxy.waits import Why
from pidgate.gateway.quotas.administration import InForce
from pidgate.quota.decisions import Reason
from tests.support.scene import Scene

MOST_ROWS: Final = 200
LONGEST_STEP_S: Final = 0.02
LONGEST_DRAW_S: Final = 0.2


class Steps:
    """How long the event loop was kept from its next turn."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began_s)


@pytest.mark.parametrize(("users", "connections"), [(200, 2_000), (2_000, 20_000)], ids=["small", "large"])
def test_a_draw_of_many_users_and_connections_is_short(users: int, connections: int) -> None:
    scene = Scene()
    shared = scene.shared
    for number in range(connections):
        client = scene.connect().channel.connection
        client.client.identify(f"user-{number % users}")
        client.client.client_id = f"client-{number}"
        if number % 100 == 0:
            client.session.context.mute_for(5_000, Why.USER_RATE, scene.time_ms, number)
    for number in range(users):
        counters = shared.admission.counters.of(f"user-{number}", scene.time_ms)
        counters.new_by_minute.count(scene.time_ms)
        counters.count_refusal(Reason.QUEUE, 1_000, scene.time_ms)
    quotas = shared.admission.quotas
    in_force, moment = InForce(quotas, {}, quotas, (), 1), Moment(scene.time_ms, 1_000_000)

    async def draw() -> tuple[float, float, float]:
        steps = Steps()
        watching = asyncio.create_task(steps.watch())  # noqa: TID251
        await asyncio.sleep(0)
        began_s = time.thread_time()
        waits = await Waits(shared).rows(moment)
        found = await Users(shared).rows(in_force, moment, waits, most=MOST_ROWS)
        first_s = time.thread_time() - began_s
        around = await Connections(shared).rows(moment, most=MOST_ROWS, sort="user")
        around_s = time.thread_time() - began_s - first_s
        watching.cancel()
        assert (len(waits), found.total, around.total) == (connections // 100, users, connections)
        assert (len(found.rows), len(around.rows)) == (MOST_ROWS, MOST_ROWS)
        return first_s, around_s, steps.longest_s

    gc.collect()
    gc.freeze()  # as a gateway does at its start: here are the objects of all other tests, too
    try:
        drawn = [asyncio.run(draw()) for _ in range(3)]
    finally:
        gc.unfreeze()
        scene.loop.close()
    first_s, around_s, step_s = (min(times_s) for times_s in zip(*drawn, strict=True))
    print(
        f"first {first_s * 1000:.0f} ms, around {around_s * 1000:.0f} ms, longest step {step_s * 1000:.1f} ms"
    )
    assert max(first_s, around_s) < LONGEST_DRAW_S
    assert step_s < LONGEST_STEP_S
