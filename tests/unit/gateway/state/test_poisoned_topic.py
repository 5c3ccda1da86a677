"""Nothing, whatever stands in an event or a snapshot, keeps a gateway from its state, or from following the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pidgate.events.writing import to_json
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.gateway.state.state_dir import About, StateDir
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import BucketState, Restorer, UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.simulator.loop import WALL_BEGAN_MS
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics
from tests.support.state_dirs import save
from tests.unit.gateway.state.started import EVENTS_TOPIC, HOUR_MS, admitted, started_on
from tests.unit.gateway.state.test_decision_scan import decision

POISON: list[dict[str, Any]] = [
    {"producer_id": 5, "tokens_after": 1, "token_units": -1},
    {"producer_id": 5, "tokens_after": 1, "token_units": 0},
    {"producer_id": -1},
    {"producer_id": 2**63},
    {"producer_id": 2**64},
]


@pytest.mark.parametrize("poison", POISON)
def test_a_gateway_restores_and_follows_past_an_impossible_event(poison: dict[str, Any]) -> None:
    async def look(manager: QuotaStateManager, machine: Machine, topics: ModelTopics) -> None:
        remembers = manager.state.table.remembers
        assert manager.is_restored
        assert remembers("alice", 6, manager._now_ms())
        assert manager.unreadable_events == 1
        topic, wall_ms = topics.topics[EVENTS_TOPIC], topics.wall_ms()
        for changes in (poison, {"producer_id": 7}):
            topic.append(0, [(b"", admitted(wall_ms, **changes)[1])], wall_ms)
        await asyncio.sleep(5)
        assert remembers("alice", 7, manager._now_ms())
        assert manager.unreadable_events == 2

    started_on(lambda wall_ms: [admitted(wall_ms, **poison), admitted(wall_ms, producer_id=6)], look)


def test_a_number_that_json_takes_for_infinite_is_unreadable() -> None:
    applier, state = EventApplier("me"), quota()
    value = to_json(decision(user="b\u00f6b")).replace(b'"producer_id":4711', b'"producer_id":1e999')
    applier.follow([EventRecord(0, 0, 0, value)], state, lambda *_: None, 0)
    assert applier.unreadable == 1


def test_a_mistake_of_ours_in_one_event_is_reported_and_the_next_is_applied() -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    mistakes: list[Exception] = []
    applier, state = EventApplier("me", on_mistake=mistakes.append), quota()
    records = [
        EventRecord(0, offset, 0, to_json(decision(producer_id=offset, decision=word)))
        for offset, word in enumerate(("refuse", "admit"))
    ]
    applier.restore(records, state.restorer, 0, 0, failing)
    applier.follow(records, state, failing, 0)
    assert [type(error) for error in mistakes] == [ZeroDivisionError] * 2
    assert applier.unreadable == 2
    assert state.table.remembers("alice", 1, 0)


@pytest.mark.parametrize("broken", ["finish_restore", "restore_tokens"])
def test_the_state_takes_over_whatever_fails_while_it_is_restored(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(EventApplier if broken == "finish_restore" else Restorer, broken, fail)

    async def look(manager: QuotaStateManager, machine: Machine, _topics: ModelTopics) -> None:
        assert manager.is_restored
        assert manager.state.table.remembers("alice", 6, manager._now_ms())
        assert any(line.event == "state_not_restored" for line in machine.lines)

    started_on(lambda wall_ms: [admitted(wall_ms, producer_id=6, tokens_after=1, token_units=1)], look)


def test_an_impossible_user_of_a_snapshot_keeps_nobody_else_from_his_state(tmp_path: Path) -> None:
    def remembering(user: str, producer_id: int, token_units: int) -> UserState:
        state = quota()
        state.restorer.restore_id(user, producer_id, 0, 0)
        (exported,) = state.restorer.export_users(0)
        return replace(exported, bucket=BucketState(0, token_units, 5_000))

    async def write() -> None:
        state_dir = StateDir(tmp_path)
        state_dir.load()
        users = [remembering("alice", 6, 1_500), remembering("bob", 7, HOUR_MS * 1_000)]
        assert await save(state_dir, users, About(WALL_BEGAN_MS, {0: 1}))
        await state_dir.close()

    asyncio.run(write())

    async def look(manager: QuotaStateManager, machine: Machine, topics: ModelTopics) -> None:
        def remembers(user: str, producer_id: int) -> bool:
            return manager.state.table.remembers(user, producer_id, manager._now_ms())

        assert remembers("bob", 7)
        # The topic is read from further back than the snapshot says, and followed.
        assert remembers("alice", 5)
        topics.topics[EVENTS_TOPIC].append(
            0, [(b"", admitted(topics.wall_ms(), user="carol", producer_id=8)[1])], topics.wall_ms()
        )
        async with asyncio.timeout(60):
            while not remembers("carol", 8):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.1)

    started_on(lambda wall_ms: [admitted(wall_ms, producer_id=5)], look, state_dir=str(tmp_path))


def quota() -> ProducerIdQuota:
    quotas = Quotas(mode=Mode.ENFORCE, producer_ids=ProducerIdSettings(), default=UserQuota.per_window(10))
    return ProducerIdQuota(quotas, lambda: 1_234_567, 0)
