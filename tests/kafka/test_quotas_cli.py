"""`pidgate quotas`, `mode` and `explain` before real brokers: in force where it says, at once, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.support.command_line import typed
from tests.support.fleet import USER
from tests.support.frames import NOT_ENOUGH_REPLICAS
from tests.support.running_producers import until
from tests.support.swarm import SwarmProducer
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

REFUSED: Final = [NOT_ENOUGH_REPLICAS]


def gateway_of(
    cluster: Cluster, topic: str, quotas: dict[str, Any], *, gateway_id: str = "gw-0"
) -> GatewayProcess:
    """Keeps quotas in a topic of its own, and may be told."""
    gateway = GatewayProcess(
        cluster.bootstrap_servers(),
        quotas=quotas,
        settings={
            "gateway_id": gateway_id,
            "events": {"topic": f"{topic}-events"},
        },
    )
    gateway.config["admin"]["writable"] = True
    return gateway


def quotas_of(rate: float) -> dict[str, Any]:
    """Tokens that do not come back while a test looks."""
    return {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"window": "10h", "max_throttle": "1s"},
    }


@dataclass(frozen=True)
class Typed:
    """A command that has ended."""

    exit_code: int
    output: str
    errors: str
    began_s: float
    took_s: float

    @property
    def words(self) -> str:
        return " ".join(self.output.split())


def pidgate(*words: str, by: GatewayProcess | list[GatewayProcess], exit_code: int = 0) -> Typed:
    """Type a command for one gateway or several."""
    gateways = by if isinstance(by, list) else [by]
    named = [word for gateway in gateways for word in ("--admin", f"127.0.0.1:{gateway.admin_port}")]
    began_s = time.monotonic()
    done = typed(*words, *named)
    assert done.returncode == exit_code, (words, done.stdout, done.stderr)
    return Typed(done.returncode, done.stdout, done.stderr, began_s, time.monotonic() - began_s)


def explained(gateway: GatewayProcess, producer_id: int) -> dict[str, Any]:
    """As the command asks, which takes a second to start on a busy machine."""
    told = json.loads(gateway.read(f"/v1/explain?user={USER}&producer_id={producer_id}"))
    assert isinstance(told, dict)
    return told


def mode_in_force(gateway: GatewayProcess) -> str:
    told = json.loads(gateway.read(f"/v1/quotas?user={USER}"))
    return str(told["entries"][0]["effective_mode"]["value"])


def rate_in_force(gateway: GatewayProcess) -> float | None:
    told = json.loads(gateway.read(f"/v1/quotas?user={USER}"))
    value = told["entries"][0]["effective_rate"]["value"]
    return None if value is None else float(value)


# ---- every command, on one gateway -------------------------------------------------------------------------


class Someone:
    """Producers with ids of the cluster, one connection each."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        self._gateway = gateway
        self._topic = topic
        self._made: list[SwarmProducer] = []

    async def new(self) -> SwarmProducer:
        self._made.append(await SwarmProducer(self._gateway.bootstrap_servers, self._topic).begin())
        return self._made[-1]

    async def admitted(self) -> SwarmProducer:
        producer = await self.new()
        assert (await producer.send_once(b"x")).codes == [0]
        return producer

    async def refused(self) -> SwarmProducer:
        producer = await self.new()
        assert (await producer.send_once(b"x")).codes == REFUSED
        return producer

    def close(self) -> None:
        for producer in self._made:
            producer.close()


def test_every_command_does_what_it_says(cluster: Cluster, topic_name: Callable[[str], str]) -> None:
    topic = create_topic(cluster.bootstrap_servers(), topic_name("commands"))
    with gateway_of(cluster, topic, quotas_of(2)) as gateway:
        asyncio.run(commands(gateway, topic))
        assert gateway.stop() == 0


async def commands(gateway: GatewayProcess, topic: str) -> None:
    someone = Someone(gateway, topic)
    try:
        await each_command(gateway, someone)
    finally:
        someone.close()


async def each_command(gateway: GatewayProcess, someone: Someone) -> None:
    async def typed(*words: str, exit_code: int = 0) -> Typed:
        return await asyncio.to_thread(pidgate, *words, by=gateway, exit_code=exit_code)

    known = [await someone.admitted() for _ in range(3)]
    waiting = await someone.refused()
    # Refused, and why: by the command while the client waits behind its mute.
    shown = (await typed("explain", "--user", USER, "--producer-id", str(waiting.producer_id))).words
    for words in (
        f"{USER}: quota 2 per 10h (file, of the default user)",
        f"{USER}: mode enforce (file, of all users)",
        "Tokens: -1 of 2: the next new id in ",
        "Remembered: 3 ids",
        f"Last refused: producer id {waiting.producer_id} ",
        "because the quota of its user is used up (2 per 10h)",
        f"Producer id {waiting.producer_id} is not remembered",
        f"pidgate quotas release --user {USER} --producer-id {waiting.producer_id}",
    ):
        assert words in shown, shown
    assert (await waiting.send_once(b"x")).codes == REFUSED
    told = await asyncio.to_thread(explained, gateway, waiting.producer_id)
    assert told["waiting"] == 1
    assert told["last_refusal"]["until_wall_ms"] > told["wall_ms"]
    assert told["last_refusal"]["throttle_time_ms"] == 1_000
    line = told["producer_id"]["waiting"]
    assert (line["queue_position"], line["attempts"], line["client_id"]) == (0, 2, "swarm")
    assert (await asyncio.to_thread(explained, gateway, known[0].producer_id))["producer_id"]["is_remembered"]
    # A release of the one that waits: in at its next attempt, and nothing is charged.
    tokens = told["tokens"]
    released = await typed("quotas", "release", "--user", USER, "--producer-id", str(waiting.producer_id))
    assert (
        f"producer id {waiting.producer_id} is admitted, uncharged gw-0: done; sent to every"
        in released.words
    )
    assert (await waiting.send_once(b"x")).codes == [0]
    told = await asyncio.to_thread(explained, gateway, waiting.producer_id)
    assert told["producer_id"]["is_remembered"]
    assert told["tokens"] == pytest.approx(tokens, abs=0.01)
    assert told["waiting"] == 0
    # A refill: all of the burst, and one below.
    await someone.refused()
    assert "its bucket is full" in (await typed("quotas", "refill", USER)).words
    for _ in range(3):
        await someone.admitted()
    await someone.refused()
    # A block: no new id, not even with tokens; those that are known go on.
    await typed("quotas", "refill", USER)
    blocked = await typed("quotas", "block", USER, "--note", "an incident")
    assert "gw-0: in force; kept in the topic" in blocked.words
    refused = await someone.refused()
    assert (await known[0].send_once(b"y")).codes == [0]
    told = await asyncio.to_thread(explained, gateway, refused.producer_id)
    assert told["last_refusal"]["reason"] == "blocked"
    # More for a while, which ends by itself: what stood before holds again.
    await typed("quotas", "raise", USER, "500", "--for", "5m")
    await someone.admitted()
    shown = (await typed("quotas", "--describe", "--entity-name", USER)).words
    assert f"{USER} producer_ids_rate 500 per 10h run time, until 2" in shown
    shown = (await typed("quotas", "diff")).words
    assert f"{USER} producer_ids_rate 0 (blocked)" in shown
    assert f"{USER} producer_ids_rate 500 per 10h" in shown
    await typed("quotas", "raise", USER, "600", "--for", "2s")
    await asyncio.to_thread(until, lambda: rate_in_force(gateway) == 0)
    await someone.refused()
    # As kafka-configs spells it, and back to the file.
    await typed(
        "quotas",
        "--alter",
        "--entity-name",
        USER,
        "--add-config",
        "producer_ids_rate=100",
    )
    await typed("quotas", "refill", USER)
    await someone.admitted()
    await typed("quotas", "alter", "--user", USER, "--delete-config", "producer_ids_rate")
    shown = (await typed("quotas", "describe", "--user", USER)).words
    assert f"{USER} producer_ids_rate 2 per 10h file, of the default user" in shown
    await typed("quotas", "alter", "--entity-default", "--add-config", "producer_ids_rate=0")
    await someone.refused()
    await typed("mode", "observe", "--user", USER)
    await someone.admitted()
    await typed("mode", "enforce", "--all")
    await someone.refused()
    for whom in (("--user", USER), ("--entity-default",)):
        assert "again as in the file" in (await typed("quotas", "reset", *whom)).words
    await typed("mode", "file", "--all")
    assert "Nothing was changed at run time" in (await typed("quotas", "diff")).words
    assert "already" in (await typed("quotas", "raise", USER, "1", exit_code=2)).errors


# ---- the emergency switch over a fleet -----------------------------------------------------------------


@dataclass
class Watch:
    """Asks each gateway all the time which mode is in force, and notes when it is the one waited for."""

    gateways: list[GatewayProcess]
    mode: str
    seen_s: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self._threads = [
            threading.Thread(target=self._look, args=(number,), daemon=True)
            for number in range(len(self.gateways))
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(20)

    def _look(self, number: int) -> None:
        give_up_s = time.monotonic() + 15
        while mode_in_force(self.gateways[number]) != self.mode:
            if time.monotonic() > give_up_s:
                return
            time.sleep(0.01)
        self.seen_s[number] = time.monotonic()

    def since(self, typed: Typed) -> list[float]:
        """Seconds from the start of the command's process until it was in force, by gateway."""
        return [round(self.seen_s[number] - typed.began_s, 3) for number in range(len(self.gateways))]


def within_the_promise(since_s: list[float], typed: Typed, what: str) -> str:
    """Two seconds from the first gateway that has it to the last, however long this machine takes to start a
    process.
    """
    assert max(since_s) - min(since_s) < 2, since_s
    return f"\n{what}: in force {since_s} s after it was typed; the command took {typed.took_s:.2f} s"


class Pipelined:
    """One connection on which three batches were sent and refused: none may pass before the first."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        self._producer = SwarmProducer(gateway.bootstrap_servers, topic)

    async def __aenter__(self) -> Pipelined:
        await self._producer.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._producer.close()

    async def send(self, sequence: int) -> int:
        """Return the code of one batch."""
        return (await self._producer.produce(self._value(sequence), sequence)).error_code

    def _value(self, sequence: int) -> bytes:
        return b"%d/%d" % (self._producer.producer_id, sequence)

    def values(self) -> list[bytes]:
        return [self._value(sequence) for sequence in range(3)]


async def switched(gateways: list[GatewayProcess], topic: str) -> tuple[list[list[bytes]], str]:
    """Refused in each gateway, then all observe: later batches pass only after the first one."""
    refused = [Pipelined(gateway, topic) for gateway in gateways]
    async with AsyncExitStack() as connections:
        for one in refused:
            await connections.enter_async_context(one)
        # Together, so that the later ones come while the mute of the first one lasts.
        codes = await asyncio.gather(*(send_behind_each_other(one) for one in refused))
        assert codes == [REFUSED * 3] * 3
        with Watch(gateways, "observe") as watch:
            typed = await asyncio.to_thread(pidgate, "mode", "observe", "--all", by=gateways[0])
        assert "(all users): mode observe gw-0: in force; kept in the topic" in typed.words
        for one in refused:
            assert [await one.send(2), await one.send(1)] == REFUSED * 2, "the first one has not come yet"
            assert [await one.send(sequence) for sequence in range(3)] == [0] * 3
    told = within_the_promise(watch.since(typed), typed, "mode observe --all")
    return [one.values() for one in refused], told


async def send_behind_each_other(one: Pipelined) -> list[int]:
    return [await one.send(sequence) for sequence in range(3)]


def refusals(gateway: GatewayProcess, reason: str = "") -> float:
    labels = {"reason": reason} if reason else {}
    return gateway.metrics().value("pidgate_requests_refused_total", **labels)
