"""Which start is a cold one: running producers are known where a gateway had a state, a short while ago."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pidgate.gateway.config.settings import ProducerIdsSettings
from pidgate.gateway.state import cold_start
from pidgate.gateway.state.cold_start import ColdStart
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.gateway.state.state_dir import About, StateDir
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics
from tests.support.rules import rule
from tests.support.state_dirs import save
from tests.unit.gateway.state.started import (
    DAY_MS,
    HOUR_MS,
    RATE,
    Past,
    admitted,
    phase,
    reasons,
    started_on,
)

MINUTE_MS = 60_000
WALL_MS = 1_700_000_000_000
RUNNING = range(1_000, 1_000 + 8 * RATE)

COLD: dict[str, Past] = {
    "nothing": lambda _wall_ms: [],
    "a gateway that only starts": lambda wall_ms: [phase(wall_ms, "start")],
    "one that is restoring and alive": lambda wall_ms: [
        phase(wall_ms - MINUTE_MS, "start"),
        phase(wall_ms - MINUTE_MS // 2, "alive"),
    ],
    "one that has met others while it is restoring": lambda wall_ms: [
        phase(wall_ms, "start"),
        phase(wall_ms, "member_seen", text="gw"),
    ],
    "one that was stopped while it was restoring": lambda wall_ms: [
        phase(wall_ms - MINUTE_MS, "start"),
        phase(wall_ms, "stop"),
    ],
    "an earlier run, longer ago than is remembered": lambda wall_ms: [
        phase(wall_ms - 3 * DAY_MS, "caught_up", gateway_id="gw"),
        phase(wall_ms - 3 * DAY_MS, "stop", gateway_id="gw"),
        admitted(wall_ms - 3 * DAY_MS, reason="first_seen"),
    ],
    "a state, and no gateway for a quarter of an hour since then": lambda wall_ms: [
        phase(wall_ms - HOUR_MS, "caught_up", grace_until_wall_ms=wall_ms - HOUR_MS // 2),
        admitted(wall_ms - HOUR_MS // 2, reason="first_seen"),
        phase(wall_ms - HOUR_MS // 4, "stop"),
    ],
    "what passed at gateways without a state": lambda wall_ms: [
        admitted(wall_ms - MINUTE_MS, reason="restoring"),
        admitted(wall_ms - MINUTE_MS, reason="fail_open"),
    ],
}
KNOWN: dict[str, Past] = {
    "a gateway that has caught up": lambda wall_ms: [
        phase(wall_ms - MINUTE_MS, "start"),
        phase(wall_ms - MINUTE_MS, "caught_up"),
    ],
    "one that began before what is read": lambda wall_ms: [phase(wall_ms - MINUTE_MS, "alive")],
    "one whose grace is over": lambda wall_ms: [
        phase(wall_ms - HOUR_MS, "caught_up", grace_until_wall_ms=wall_ms - MINUTE_MS),
        phase(wall_ms - MINUTE_MS // 2, "alive"),
    ],
    "a decision by a state": lambda wall_ms: [admitted(wall_ms - MINUTE_MS, reason="refresh")],
    "one that decided in a grace that is over": lambda wall_ms: [
        phase(wall_ms - HOUR_MS, "caught_up", grace_until_wall_ms=wall_ms - 1),
        admitted(wall_ms - 2 * MINUTE_MS, incarnation="other", reason="first_seen"),
    ],
}


@pytest.mark.parametrize("past", COLD.values(), ids=COLD)
def test_a_start_without_a_state_of_anybody_is_cold(past: Past) -> None:
    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert HOUR_MS - MINUTE_MS < manager.grace_left_ms <= HOUR_MS
        assert reasons(manager, "alice", RUNNING) == {"grace": len(RUNNING)}

    started_on(past, look)


def test_a_grace_that_was_ended_at_run_time_is_not_shown() -> None:
    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert manager.grace_left_ms
        quotas = manager.state.in_force.value
        manager.state.set_quotas(replace(quotas, default=replace(quotas.default, grace_milli=0)), 0)
        assert manager.grace_left_ms == 0

    started_on(COLD["nothing"], look)


@pytest.mark.parametrize("past", KNOWN.values(), ids=KNOWN)
def test_a_start_after_a_state_is_none(past: Past) -> None:
    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert manager.grace_left_ms == 0
        assert reasons(manager, "alice", RUNNING) == {
            "first_seen": RATE + 1,
            "!first_seen": len(RUNNING) - RATE - 1,
        }

    started_on(past, look)


def test_a_grace_of_another_is_shared_not_begun_anew() -> None:
    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert 9 * MINUTE_MS < manager.grace_left_ms <= 10 * MINUTE_MS

    def past(wall_ms: int) -> list[tuple[int, bytes]]:
        until_ms = wall_ms + 10 * MINUTE_MS
        return [
            phase(wall_ms, "caught_up", grace_until_wall_ms=until_ms),
            admitted(wall_ms, reason="first_seen"),
        ]

    started_on(past, look)


def starts_beside_another() -> dict[str, int]:
    """How many ids are let in for which reason, where another gateway has let 30 pass and begins its grace, too."""
    found: dict[str, int] = {}

    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert manager.grace_left_ms
        found.update(reasons(manager, "alice", RUNNING))

    started_on(
        lambda wall_ms: [
            phase(wall_ms, "start"),
            *(admitted(wall_ms, producer_id=number, reason="restoring") for number in range(30)),
        ],
        look,
    )
    return found


def test_gateways_that_start_at_the_same_time_have_one_bound() -> None:
    """What the other let pass in its first moments is in the topic, and its grace is not yet."""
    assert starts_beside_another()["grace"] == 10 * RATE - 30


@pytest.mark.parametrize(("age_ms", "granted"), [(3 * DAY_MS, 10 * RATE), (MINUTE_MS, 0)])
def test_a_grace_counts_what_it_let_in_itself_not_what_an_earlier_one_did(
    age_ms: int, granted: int, tmp_path: Path
) -> None:
    """A snapshot of a gateway that stopped within its grace, in which one user had come to its bound."""

    async def snapshot() -> None:
        state_dir = StateDir(str(tmp_path))
        state_dir.load()
        with Machine(1) as machine:
            wall_ms = machine.loop.wall_ns() // 1_000_000 - age_ms
        alice = UserState("alice", (7, 8), grace_admitted=10 * RATE)
        await save(state_dir, [alice], About(wall_ms, {}, wall_ms + HOUR_MS // 2))
        await state_dir.close()

    asyncio.run(snapshot())

    async def look(manager: QuotaStateManager, _machine: Machine, _topics: ModelTopics) -> None:
        assert manager.grace_left_ms
        assert reasons(manager, "alice", range(10 * RATE)).get("grace", 0) == granted

    started_on(lambda _wall_ms: [], look, state_dir=str(tmp_path))


@pytest.mark.parametrize(("grace_left_ms", "is_ended"), [(HOUR_MS, False), (-1, True)])
def test_a_topic_that_is_read_late_ends_a_grace_unless_the_others_are_in_theirs(
    grace_left_ms: int, *, is_ended: bool
) -> None:
    async def look(manager: QuotaStateManager, _machine: Machine, topics: ModelTopics) -> None:
        assert manager.grace_left_ms
        assert not manager._caught_up.is_set()
        topics.heal()
        async with asyncio.timeout(120):
            await manager._caught_up.wait()
        assert (manager.grace_left_ms == 0) is is_ended

    def past(wall_ms: int) -> list[tuple[int, bytes]]:
        until_ms = wall_ms + grace_left_ms
        return [
            phase(wall_ms, "start"),
            phase(wall_ms, "caught_up", grace_until_wall_ms=until_ms),
            phase(wall_ms, "alive", grace_until_wall_ms=until_ms),
        ]

    started_on(past, look, is_readable=False)


CLOCK = {"monotonic": 0, "wall": 0}


def a_wall_clock_begins_no_grace_again(monkeypatch: pytest.MonkeyPatch) -> bool:
    """The rule: a grace that is over stays so, wherever the wall clock is set to."""
    clock = CLOCK
    clock.update(monotonic=5_000, wall=WALL_MS)
    monkeypatch.setattr(cold_start, "wall_ms", lambda: clock["wall"])
    settings = ProducerIdsSettings.model_validate({"grace": "10m"})
    quota = ProducerIdQuota(Quotas(Mode.ENFORCE, ProducerIdSettings()), lambda: 1, 0)
    start = ColdStart(settings, quota, lambda: clock["monotonic"])
    start.begin("a test")
    until_wall_ms = start.grace_until_wall_ms
    assert until_wall_ms == clock["wall"] + 10 * MINUTE_MS
    start.share(until_wall_ms + 5, "another machine's clock", is_restored=True)
    assert start.grace_left_ms == 10 * MINUTE_MS, "the same grace"
    clock["monotonic"] += 11 * MINUTE_MS
    is_over = start.grace_left_ms == 0
    clock["wall"] -= MINUTE_MS
    start.share(until_wall_ms + 5, "another that was set back", is_restored=True)
    return is_over and not start.grace_left_ms and start.grace_until_wall_ms is None


@rule("A grace that has ended stays ended if the wall clock is set back.", "fleet")
def test_a_wall_clock_that_is_set_back_begins_no_grace_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert a_wall_clock_begins_no_grace_again(monkeypatch)
