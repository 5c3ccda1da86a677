"""A gateway that is killed again and again under load, and whether anything was forgotten, lost or doubled.

Three kinds of producers, over SASL so that two users have accounts of their own: alice's steady ones go on all the
time, her newcomers come at a steady rate and come back after each restart, bob's rogue brings a new id each time and
has used up his quota. All times are wall clock milliseconds, as in events.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.frames import NOT_ENOUGH_REPLICAS
from tests.support.running_producers import next_value
from tests.support.swarm import SwarmProducer
from tools.sandbox.gateway import GatewayProcess, Metrics
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

ALICE, BOB = "alice", "bob"
ALICE_RATE, BOB_RATE = 20_000, 5
WINDOW_S = 36_000
LOST_MS = 200
"""A kill -9 may forget the admissions of so long before it, while the topic works."""
LOST_WITHOUT_TOPIC_MS = 5_000
USUALLY_UNCERTAIN = 10
"""Of a kill: twenty come in a second, and are on the way for a few milliseconds."""
BACK_EACH_TIME = 60
"""Of alice's earlier newcomers so many come back after each restart."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Newcomer:
    """One of alice's producers: when its first batch was sent first, and when it was acknowledged."""

    producer: SwarmProducer
    began_ms: int
    acked_ms: int = 0
    is_busy: bool = False


@dataclass
class Kill:
    """One restart, and what came out of it."""

    killed_ms: int
    gone_ms: int
    ready_s: float = 0.0
    expected_tokens: float = 0.0
    found_tokens: float = 0.0
    tolerance: int = 0
    back: int = 0
    codes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    refused_ms: list[int] = field(default_factory=list)
    """Of those who were refused when they came back: how long before a kill they had been admitted."""

    @property
    def is_within(self) -> bool:
        return abs(self.found_tokens - self.expected_tokens) <= self.tolerance + 0.5

    @property
    def off(self) -> float:
        """By how many tokens it is off, less those that are uncertain beyond the usual."""
        return abs(self.found_tokens - self.expected_tokens) - max(0, self.tolerance - USUALLY_UNCERTAIN)


class KillLoad:
    """`run` does it all, once the gateway was started. `before_start` is called while the gateway is dead."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        directory: Path,
        *,
        events: Mapping[str, Any] | None,
        state_dir: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        newcomers_per_s: float = 20.0,
        before_start: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self.cluster = cluster
        self._brokers = cluster.bootstrap_servers()
        self._topic = create_topic(self._brokers, topic)
        self._events = events
        self._lost_ms = LOST_WITHOUT_TOPIC_MS if events is None else LOST_MS
        self._pause_s = 1 / newcomers_per_s
        self._before_start = before_start
        password = directory / "password"
        password.write_text("admin-secret")
        own = {"mechanism": "PLAIN", "username": "admin", "password_file": str(password)}
        self.gateway = GatewayProcess(
            cluster.bootstrap_servers(SASL_PLAINTEXT),
            quotas={
                "mode": "enforce",
                "users": {
                    ALICE: {"producer_ids_rate": ALICE_RATE},
                    BOB: {"producer_ids_rate": BOB_RATE},
                },
                "producer_ids": {"window": f"{WINDOW_S}s", "max_throttle": "1s"},
            },
            settings={
                "own_client": own,
                "events": dict(events) if events is not None else {"enabled": False},
                **({"state_dir": str(state_dir)} if state_dir is not None else {}),
                **(settings or {}),
            },
        )
        self.steady: list[SwarmProducer] = []
        self.newcomers: list[Newcomer] = []
        self.kills: list[Kill] = []
        self.rogue_codes: Counter[int] = Counter()
        self.rogues: list[SwarmProducer] = []
        self.unknown: set[bytes] = set()
        """Of the rogue: sent, and cut off before an answer came."""
        self.steady_codes: Counter[int] = Counter()
        self._ids = SwarmProducer(self._brokers, topic)
        self._allocating = asyncio.Lock()
        self._ends = False

    def run(self, kills: int, *, load_s: float = 1.0, seed: int = 1) -> None:
        try:
            asyncio.run(self._run(kills, load_s, random.Random(seed)))
        except Exception as error:
            error.add_note(f"the end of the gateway's log:\n{self.gateway.log_tail()}")
            raise

    async def _run(self, kills: int, load_s: float, rng: random.Random) -> None:
        loads = [
            asyncio.ensure_future(load)
            for load in (self._go_on(), self._go_on(), self._newcomers_come(), self._rogue_comes())
        ]
        # A first snapshot is taken after a second.
        await asyncio.sleep(1.5)
        for number in range(kills):
            await asyncio.sleep(load_s * rng.uniform(0.5, 1.5))
            for load in loads:
                if load.done():
                    load.result()
            self.kills.append(await self._kill(number, rng))
        self._ends = True
        await asyncio.gather(*loads)
        for newcomer in self.newcomers:
            newcomer.producer.close()
        self._ids.close()

    # The load

    async def _new_producer(self, user: str) -> SwarmProducer:
        async with self._allocating:
            await self._ids.begin()
            producer_id = self._ids.producer_id
        return await SwarmProducer(self.gateway.bootstrap_servers, self._topic, user=user).begin(producer_id)

    async def _go_on(self) -> None:
        producer = await self._new_producer(ALICE)
        self.steady.append(producer)
        first = Newcomer(producer, wall_ms(), is_busy=True)
        while not self._ends:
            sent = await producer.send(next_value(producer))
            self.steady_codes.update(sent.codes)
            if not first.acked_ms:
                first.acked_ms = wall_ms()
                self.newcomers.append(first)
            await asyncio.sleep(0.01)
        producer.close()

    async def _newcomers_come(self) -> None:
        coming: set[asyncio.Task[None]] = set()
        while not self._ends:
            task = asyncio.ensure_future(self._come(await self._new_producer(ALICE)))
            coming.add(task)
            task.add_done_callback(coming.discard)
            await asyncio.sleep(self._pause_s)
        await asyncio.gather(*coming)

    async def _come(self, producer: SwarmProducer) -> None:
        newcomer = Newcomer(producer, wall_ms(), is_busy=True)
        self.newcomers.append(newcomer)
        sent = await producer.send(next_value(producer))
        newcomer.acked_ms = wall_ms()
        assert set(sent.codes) == {0}, sent
        producer.close()
        newcomer.is_busy = False

    async def _rogue_comes(self) -> None:
        while not self._ends:
            rogue = await self._new_producer(BOB)
            self.rogues.append(rogue)
            value = next_value(rogue)
            try:
                sent = await rogue.send_once(value)
            except OSError:
                self.unknown.add(value)
                await asyncio.sleep(0.1)
            else:
                self.rogue_codes.update(sent.codes)
            rogue.close()
            await asyncio.sleep(self._pause_s)

    async def _come_back(self, newcomer: Newcomer, kill: Kill) -> None:
        newcomer.is_busy = True
        sent = await newcomer.producer.send(next_value(newcomer.producer))
        kill.codes[tuple(sent.codes)] += 1
        if NOT_ENOUGH_REPLICAS in sent.codes:
            # It may be some restarts since it was forgotten.
            kill.refused_ms.append(_before_kill_ms(newcomer.acked_ms, [*self.kills, kill]))
        newcomer.producer.close()
        newcomer.is_busy = False

    # A kill

    async def _kill(self, number: int, rng: random.Random) -> Kill:
        before_ms, before = await self._balance()
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        killed_ms = wall_ms()
        await asyncio.to_thread(self.gateway.kill)
        # Answers that lie in sockets are read now: until `gone_ms` whoever answered was the one that was killed.
        await asyncio.sleep(0.05)
        gone_ms = wall_ms()
        self._before_start(number)
        idle = [newcomer for newcomer in self.newcomers if newcomer.acked_ms and not newcomer.is_busy]
        latest, older = idle[-BACK_EACH_TIME // 2 :], idle[: -BACK_EACH_TIME // 2]
        back = latest + rng.sample(older, min(len(older), BACK_EACH_TIME // 2))
        rng.shuffle(back)
        kill = Kill(killed_ms, gone_ms, back=len(back))
        # Some come at once, before the state is restored, the others when it is.
        early = [asyncio.ensure_future(self._come_back(one, kill)) for one in back[::3]]
        began_s = time.monotonic()
        await asyncio.to_thread(self.gateway.start)
        kill.ready_s = time.monotonic() - began_s
        late = [self._come_back(one, kill) for number, one in enumerate(back) if number % 3]
        await asyncio.gather(*early, *late)
        after_ms, kill.found_tokens = await self._balance()
        refill = (after_ms - before_ms) / 1000 * ALICE_RATE / WINDOW_S
        kill.expected_tokens = before - self._admitted_between(before_ms, after_ms) + refill
        kill.tolerance = self._uncertain(before_ms, killed_ms, after_ms)
        return kill

    async def _balance(self) -> tuple[int, float]:
        metrics: Metrics = await asyncio.to_thread(self.gateway.metrics)
        return wall_ms(), metrics.value("pidgate_producer_ids_tokens", user=ALICE)

    def _admitted_between(self, begin_ms: int, end_ms: int) -> int:
        return sum(begin_ms < newcomer.acked_ms <= end_ms for newcomer in self.newcomers)

    def _uncertain(self, before_ms: int, killed_ms: int, after_ms: int) -> int:
        """Count the ids that may have been charged or not: those that a kill may forget, and those on the way."""
        return sum(
            (killed_ms - self._lost_ms <= one.acked_ms and one.began_ms <= killed_ms)
            or any(
                one.began_ms <= at_ms + 20 and one.acked_ms >= at_ms - 100 for at_ms in (before_ms, after_ms)
            )
            or (one.began_ms <= after_ms and not one.acked_ms)
            for one in self.newcomers
        )

    # What came out

    def check_log(self) -> None:
        """What was acknowledged is in the log, once, and nothing else is but what the rogue got no answer for."""
        producers = [newcomer.producer for newcomer in self.newcomers] + self.rogues
        acknowledged = {value for producer in producers for value in producer.acknowledged}
        found = Counter(record.value for record in read_log(self._brokers, self._topic))
        doubled = {value for value, times in found.items() if times > 1}
        missing = acknowledged - found.keys()
        surplus = found.keys() - acknowledged - self.unknown
        assert (doubled, missing, surplus) == (set(), set(), set())

    def check_kills(self) -> None:
        for number, kill in enumerate(self.kills):
            assert kill.is_within, (number, kill)
            assert kill.back > 0
            # 46: the first try had arrived.
            assert {code for codes in kill.codes for code in codes} <= {0, 46, NOT_ENOUGH_REPLICAS}, kill
            assert max(kill.refused_ms, default=0) <= self._lost_ms, (number, kill)
        # Most restarts happen while few are on the way; on a busy machine more are.
        assert median(kill.off for kill in self.kills) <= 1.5
        assert set(self.steady_codes) <= {0, 46}
        assert self.rogue_codes[NOT_ENOUGH_REPLICAS] > 0

    def decisions(self) -> list[dict[str, Any]]:
        """All decision events in the topic, in the order of time."""
        assert self._events is not None
        values = (record.value for record in read_log(self._brokers, self._events["topic"]))
        found = [event for event in map(json.loads, values) if event["type"] == "decision"]
        return sorted(found, key=lambda event: int(event["wall_time_ms"]))

    def charged_again(self) -> tuple[int, int]:
        """How many of alice's ids were charged in two runs of the gateway, and what the oldest of these first
        charges was: milliseconds before the kill.
        """
        charges: dict[int, dict[str, int]] = defaultdict(dict)
        for event in self.decisions():
            if event["user"] == ALICE and event["reason"] in ("first_seen", "queue"):
                assert event["decision"] == "admit"
                charges[event["producer_id"]].setdefault(event["incarnation"], event["wall_time_ms"])
        again = [list(runs.values()) for runs in charges.values() if len(runs) > 1]
        ages_ms = [_before_kill_ms(at_ms, self.kills) for times in again for at_ms in times[:-1]]
        return len(again), max(ages_ms, default=0)

    def forgotten(self) -> tuple[int, int]:
        """How many of alice's admissions left no event before the kill, and what the oldest was: milliseconds
        before the kill.
        """
        told: dict[int, int] = {}
        for event in self.decisions():
            if event["user"] == ALICE:
                told.setdefault(event["producer_id"], event["wall_time_ms"])
        ages_ms = [
            _before_kill_ms(one.acked_ms, self.kills)
            for one in self.newcomers
            if told.get(one.producer.producer_id, 1 << 62) > one.acked_ms + LOST_MS
        ]
        return len(ages_ms), max(ages_ms, default=0)

    def rogue_admitted(self) -> Counter[str]:
        """Reasons for which bob's ids were let in."""
        return Counter(
            event["reason"]
            for event in self.decisions()
            if event["user"] == BOB and event["decision"] == "admit"
        )

    def told(self) -> str:
        """The numbers, for people."""
        ready_s = sorted(kill.ready_s for kill in self.kills)
        off = [kill.found_tokens - kill.expected_tokens for kill in self.kills]
        codes = sum((kill.codes for kill in self.kills), Counter[tuple[int, ...]]())
        return (
            f"{len(self.kills)} kills; ready again after {ready_s[len(ready_s) // 2]:.2f} s (median), "
            f"{ready_s[-1]:.2f} s (longest); tokens off by {min(off):.2f} to {max(off):.2f} "
            f"(allowed {max(kill.tolerance for kill in self.kills)} at most); {len(self.newcomers)} ids, "
            f"{sum(kill.back for kill in self.kills)} came back: {dict(codes)}; "
            f"refused of them {sorted(age for kill in self.kills for age in kill.refused_ms)} ms before a kill; "
            f"steady batches {self.steady_codes[0]}; rogue {dict(self.rogue_codes)}"
        )


def _before_kill_ms(at_ms: int, kills: list[Kill]) -> int:
    """How long before the next kill. What was answered before it may have been read from the socket after it."""
    return min(
        (max(0, kill.killed_ms - at_ms) for kill in kills if kill.gone_ms >= at_ms),
        default=1 << 30,
    )
