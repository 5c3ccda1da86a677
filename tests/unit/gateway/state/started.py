"""A gateway on the simulated machine that starts on an events topic with a past."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from pidgate.events.definitions import Event, LifecycleEvent
from pidgate.events.writing import to_json
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.state.manager import QuotaStateManager
from tests.simulator.gateway import SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopic, ModelTopics
from tests.support.loopback import ScriptedBroker
from tests.support.questions import is_refused, question
from tests.unit.gateway.state.test_decision_scan import decision

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
RATE: Final = 5
EVENTS: Final = {"enabled": True}
EVENTS_TOPIC: Final = "__pidgate_events"

Past = Callable[[int], Iterable[tuple[int, bytes]]]
"""Events of the topic by the wall clock at the start: when each was appended, and the event."""


def admitted(wall_ms: int, **changes: Any) -> tuple[int, bytes]:
    """Return the admission of an id by another gateway, appended as it was written."""
    given: dict[str, Any] = {
        "incarnation": "other",
        "wall_time_ms": wall_ms,
        "tokens_after": None,
        "token_units": None,
    }
    return wall_ms, to_json(decision(**(given | changes)))


def phase(wall_ms: int, phase: Any, **changes: Any) -> tuple[int, bytes]:
    """Return a lifecycle event of another gateway, appended as it was written."""
    given: dict[str, Any] = dict(
        cluster="", gateway_id="gw2", incarnation="other", seq=1, wall_time_ms=wall_ms, decision_time_ms=1,
        phase=phase, mode="enforce", window_ms=HOUR_MS, remember_ms=DAY_MS,
    )  # fmt: skip
    event: Event = LifecycleEvent(**(given | changes))
    return wall_ms, to_json(event)


def manager_of(gateway: SimulatedGateway) -> QuotaStateManager:
    """Return the state manager of a gateway that runs."""
    serving = gateway.serving
    assert isinstance(serving, Gateway)
    return serving._manager


async def until_restored(gateway: SimulatedGateway) -> QuotaStateManager:
    """Return its state manager, once it has its state."""
    manager = manager_of(gateway)
    async with asyncio.timeout(60):
        while not manager.is_restored:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    return manager


async def a_broker(machine: Machine) -> str:
    """Start a broker that answers what a gateway asks for itself; return its address."""
    broker = ScriptedBroker()
    await machine.loop.process("broker").spawn(broker.__aenter__())
    broker.nodes = {1: ("broker", broker.port)}
    return f"broker:{broker.port}"


def started_on(
    past: Past,
    look: Callable[[QuotaStateManager, Machine, ModelTopics], Awaitable[None]],
    *,
    is_readable: bool = True,
    **more: Any,
) -> None:
    """Start a gateway on a topic with this past, and look at it once it is restored.

    `is_readable`: False: it cannot reach the topic until `look` heals it. `more`: of the configuration.
    """
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": RATE},
        "producer_ids": {"grace": "1h"},
        **more.pop("quotas", {}),
    }
    with Machine(1) as machine:
        topics = ModelTopics(machine.loop)

        async def main() -> None:
            topic = topics.topics[EVENTS_TOPIC] = ModelTopic(
                EVENTS_TOPIC, [[]], {"message.timestamp.type": "LogAppendTime"}
            )
            for append_ms, value in past(topics.wall_ms()):
                topic.append(0, [(b"", value)], append_ms)
            settings = configured("gw", await a_broker(machine), events=EVENTS, quotas=quotas, **more)
            gateway = SimulatedGateway(machine, settings, topics.own_client)
            if not is_readable:
                topics.cut("gw")
            await gateway.start()
            await look(await until_restored(gateway), machine, topics)
            await gateway.drain()

        machine.loop.run(main())


def reasons(manager: QuotaStateManager, user: str, ids: Iterable[int]) -> dict[str, int]:
    """Return how many of these ids are decided about for which reason, "!" in front of a refusal's."""
    found: dict[str, int] = {}
    for producer_id in ids:
        answer = manager.state.decide(*question(user, producer_id), manager._now_ms())
        reason = answer.decisions[0].reason.value if answer.decisions else "known"
        key = f"!{reason}" if is_refused(answer) else reason
        found[key] = found.get(key, 0) + 1
    return found
