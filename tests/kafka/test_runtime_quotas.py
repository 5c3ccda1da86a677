"""Quotas that are set at run time, over a real topic: in force everywhere, in one order, over restarts and outages."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from structlog.testing import capture_logs

from pidgate.gateway import clock
from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.local_token import token_of
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import InForce, Kept
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from pidgate.quota.entities import resolve
from pidgate.quota.settings import Mode, Quotas
from tests.support.frames import NOT_ENOUGH_REPLICAS
from tests.support.running_producers import until as until_true
from tests.support.swarm import SwarmProducer
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic
from tools.sandbox.wire import ProducerStates

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]
RATE, MODE = Setting.PRODUCER_IDS_RATE, Setting.MODE
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Of this file alone: it is paused and killed, and its cleaner does not rest."""
    cluster = Cluster(ClusterSpec(properties={"log.cleaner.backoff.ms": "100"}))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop(keep_logs=request.session.testsfailed > 0)


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_left_unlooked_at(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio complains in the gateway's log of errors that nobody took."""
    yield
    gc.collect()
    records = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records if record.name == "asyncio"] == []


def run(test: Coroutine[Any, Any, None]) -> None:
    """On the event loop that the gateway uses."""
    uvloop.run(test)


async def until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_true():  # noqa: ASYNC110 - what is waited for is told by no event
            await asyncio.sleep(0.002)


def settings_of(cluster: Cluster, topic: str, number: int = 0, state_dir: Path | None = None) -> Settings:
    return parse(
        f"""
cluster: {{bootstrap_servers: [{", ".join(f'"{one}"' for one in cluster.bootstrap_servers().split(","))}]}}
gateway_id: gw-{number}
{"" if state_dir is None else f"state_dir: {state_dir}"}
quotas:
  mode: enforce
  users: {{alice: {{producer_ids_rate: 100}}}}
events: {{topic: {topic.removesuffix("_quotas")}}}
"""
    )


class Gateway:
    """A quota store, and what it notified. `ahead_ms`: how wrong its clock is."""

    def __init__(self, settings: Settings, ahead_ms: int = 0) -> None:
        kafka = OwnClient.from_settings(settings)
        self.book = QuotaStore(settings, self, kafka, token_hex(6), lambda: clock.wall_ms() + ahead_ms)
        self.commands: list[Command] = []
        self.topic_ids: list[bytes] = []

    def quotas_changed(self, in_force: InForce) -> None: ...

    def command_given(self, command: Command) -> None:
        self.commands.append(command)

    def topic_id_learnt(self, topic_id: bytes) -> None:
        self.topic_ids.append(topic_id)

    def rate(self, user: str = "alice") -> int | None:
        return resolve(self.book.in_force.quotas, user).rate_milli

    @property
    def quotas(self) -> Quotas:
        return self.book.in_force.quotas


@asynccontextmanager
async def running(gateway: Gateway, *, is_read: bool = True) -> AsyncIterator[Gateway]:
    gateway.book.open()
    gateway.book.start()
    try:
        if is_read:
            await until(lambda: gateway.book.is_read)
        yield gateway
    finally:
        await gateway.book.stop()


@asynccontextmanager
async def fleet(cluster: Cluster, topic: str, number: int = 3) -> AsyncIterator[list[Gateway]]:
    async with AsyncExitStack() as stack:
        made = [Gateway(settings_of(cluster, topic, n)) for n in range(number)]
        yield await asyncio.gather(*(stack.enter_async_context(running(one)) for one in made))


def rate(value: int, user: str | None = "alice", *, until_ms: int | None = None) -> Change:
    return Change(
        target=Target(RATE, user, until_ms is not None),
        action=Action.SET,
        value=value,
        until_wall_ms=until_ms,
        set_by="operator",
    )


def mode_of_all(value: Mode) -> Change:
    return Change(target=Target(MODE, None), action=Action.SET, value=value, set_by="operator")


def reset(target: Target) -> Change:
    return Change(target=target, action=Action.RESET, set_by="operator")


def named(lines: Sequence[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == event]


def set_topic(cluster: Cluster, topic: str, **settings: str) -> None:
    """As kafka-configs does it."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    admin.incremental_alter_configs([asked])[asked].result(timeout=10)


def put(cluster: Cluster, topic: str, key: bytes, value: bytes | None) -> None:
    """By a client that got past all guards."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers()})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(10) == 0


# Everywhere


def test_a_change_made_at_one_is_in_force_at_all_soon(cluster: Cluster, topic_name: TopicName) -> None:
    delays_ms: list[float] = []

    async def test() -> None:
        async with fleet(cluster, f"{topic_name('events')}_quotas") as gateways:
            for number in range(50):
                teller = gateways[number % 3]
                others = [gateway for gateway in gateways if gateway is not teller]
                began_s = time.monotonic()
                telling = asyncio.ensure_future(teller.book.change([rate(number + 1)]))
                await asyncio.sleep(0)
                assert teller.rate() == number + 1, "at once"
                await until(lambda: all(other.rate() == number + 1 for other in others))  # noqa: B023
                delays_ms.append((time.monotonic() - began_s) * 1000)
                assert await telling is Kept.TOPIC
            versions = [gateway.book.in_force.version for gateway in gateways]
            assert versions == [51] * 3, "told once each"

    run(test())
    ordered = sorted(delays_ms)
    print(
        f"in force at two others: median {ordered[25]:.1f} ms, longest {ordered[-1]:.1f} ms of {len(ordered)}"
    )
    assert ordered[-1] < 2_000


def test_the_emergency_switch_reaches_all(cluster: Cluster, topic_name: TopicName) -> None:
    async def test() -> None:
        async with fleet(cluster, f"{topic_name('events')}_quotas") as gateways:
            await gateways[1].book.change([mode_of_all(Mode.OBSERVE)])
            await until(lambda: all(not resolve(g.quotas, "alice").enforces for g in gateways), 2.0)
            await gateways[2].book.change([reset(Target(MODE, None))])
            await until(lambda: all(resolve(g.quotas, "alice").enforces for g in gateways), 2.0)

    run(test())


def test_one_that_starts_later_knows_all_and_does_nothing_of_the_past(
    cluster: Cluster, topic_name: TopicName, lines: list[MutableMapping[str, Any]]
) -> None:
    topic = f"{topic_name('events')}_quotas"

    async def test() -> None:
        async with fleet(cluster, topic, 2) as (here, there):
            await here.book.change([rate(number, f"user-{number}") for number in range(500)])
            await there.book.change([reset(Target(RATE, "user-7")), rate(5, None)])
            command = Command(type=CommandType.RELEASE, user="alice", producer_id=7, set_by="operator")
            assert await here.book.command(command) is Kept.TOPIC
            await until(lambda: len(there.commands) == 1)
            await until(lambda: there.quotas == here.quotas)
            assert here.commands == there.commands
            assert there.commands[0].set_through == "gw-0"
            async with running(Gateway(settings_of(cluster, topic, 9))) as late:
                assert late.quotas == here.quotas
                assert late.rate("user-7") == 5
                assert late.book.in_force.provenance == here.book.in_force.provenance
                # Both are live now, and the new one hears what comes.
                assert await late.book.command(Command(type=CommandType.REFILL, user="bob")) is Kept.TOPIC
                await until(lambda: len(here.commands) == len(there.commands) == 2)
                assert [command.type for command in late.commands] == [CommandType.REFILL]
                # A command that was heard is taken back by the one that was told it, once it has heard it too.
                async with asyncio.timeout(30):
                    while (await asyncio.to_thread(read_log, servers, topic))[-1].value != b"":  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

    servers = cluster.bootstrap_servers()
    run(test())
    read = named(lines, "quotas_topic_read")
    assert read[-1]["changes"] == 500
    assert named(lines, "quotas_topic_unreadable_records") == []


# One order


async def soon(is_true: Callable[[], bool], seconds: float = 1.0) -> bool:
    """Whether it came true."""
    try:
        await until(is_true, seconds)
    except TimeoutError:
        return False
    return True


# Restarts and outages


@pytest.mark.faults
def test_while_kafka_is_down_one_gateway_has_it_and_the_others_get_it_later(
    own_cluster: Cluster, topic_name: TopicName, tmp_path: Path, lines: list[MutableMapping[str, Any]]
) -> None:
    topic = f"{topic_name('events')}_quotas"
    settings = settings_of(own_cluster, topic, 0, tmp_path)

    async def test() -> None:
        async with fleet(own_cluster, topic, 2) as others:
            async with running(Gateway(settings)) as told:
                await told.book.change([rate(1, "bob"), rate(1, "carol")])
                await until(lambda: all(other.rate("carol") == 1 for other in others))
                own_cluster.node(1).kill()
                began_s = time.monotonic()
                telling = asyncio.ensure_future(told.book.change([rate(7)]))
                await asyncio.sleep(0)
                assert told.rate() == 7, "at once"
                assert await telling is Kept.STATE_DIR
                assert time.monotonic() - began_s < 4.0
                assert await told.book.change([rate(9), reset(Target(RATE, "bob"))]) is Kept.STATE_DIR
            assert [other.rate() for other in others] == [100_000] * 2
            # It starts again, and Kafka is still away.
            async with running(Gateway(settings), is_read=False) as told:
                assert [told.rate(user) for user in ("alice", "bob", "carol")] == [9, None, 1]
                assert not told.book.is_read
                assert await told.book.change([rate(8, "dave")]) is Kept.STATE_DIR
                await asyncio.to_thread(own_cluster.start_node, 1)
                back_s = time.monotonic()
                await until(lambda: all(other.rate() == 9 and other.rate("dave") == 8 for other in others))
                print(f"after Kafka was back, in force everywhere in {time.monotonic() - back_s:.1f} s")
                await until(lambda: told.book.is_read and all(g.quotas == told.quotas for g in others))
                assert others[0].rate("bob") is None
                await others[0].book.change([rate(11)])
                await until(lambda: told.rate() == 11)
            async with running(Gateway(settings)) as told:
                assert told.rate() == 11, "what was written is not written again"

    run(test())
    assert {line["doing"] for line in named(lines, "quotas_topic_unavailable")} == {"writing", "reading"}
    assert {line["kept"] for line in named(lines, "quota_change_not_kept")} == {"state_dir"}


@pytest.mark.faults
def test_a_broker_that_hangs_takes_changes_when_it_goes_on_and_the_last_one_holds(
    own_cluster: Cluster, topic_name: TopicName
) -> None:
    """What is under way when it hangs may be written late, and behind what was said afterwards."""

    async def test() -> None:
        async with fleet(own_cluster, f"{topic_name('events')}_quotas", 2) as (here, there):
            await here.book.change([rate(1)])
            await until(lambda: there.rate() == 1)
            own_cluster.node(1).signal(signal.SIGSTOP)
            try:
                assert await here.book.change([rate(2)]) is Kept.MEMORY
                await asyncio.sleep(5)  # The first attempt runs out of time.
                assert await here.book.change([rate(3)]) is Kept.MEMORY
                assert here.rate() == 3
            finally:
                own_cluster.node(1).signal(signal.SIGCONT)
            await until(lambda: there.rate() == 3 and here.book.unwritten == 0)
            # Late copies, if there are any, have come when a word of the other has come after them.
            await there.book.change([rate(4, "bob")])
            await until(lambda: here.rate("bob") == 4)
            assert await soon(lambda: here.rate() == there.rate() == 3)

    run(test())


def test_compaction_loses_nothing(own_cluster: Cluster, topic_name: TopicName) -> None:
    topic = f"{topic_name('events')}_quotas"
    end_ms = clock.wall_ms() + HOUR_MS

    async def test() -> None:
        async with fleet(own_cluster, topic, 2) as (here, there):
            set_topic(own_cluster, topic, segment_ms="100", min_cleanable_dirty_ratio="0.01")
            await here.book.change([mode_of_all(Mode.OBSERVE), rate(5, "carol", until_ms=end_ms)])
            await here.book.change([rate(1, "bob"), rate(6, None)])
            await here.book.change([reset(Target(RATE, "bob"))])
            for number in range(60):
                await (here, there)[number % 2].book.change(
                    [rate(number), rate(number, f"user-{number % 3}")]
                )
                await asyncio.sleep(0.03)
            # A segment is closed by what comes after it.
            for number in range(40):
                left = await asyncio.to_thread(read_log, own_cluster.bootstrap_servers(), topic)
                if len(left) < 60:
                    break
                await here.book.change([rate(number, "last")])
                await asyncio.sleep(0.25)
            print(f"compacted: {len(left)} records left of {left[-1].offset + 1}")
            assert len(left) < 60 < left[-1].offset
            await until(lambda: here.quotas == there.quotas)
            async with running(Gateway(settings_of(own_cluster, topic, 9))) as late:
                assert late.quotas == here.quotas
                assert set(late.book.in_force.changes) == set(here.book.in_force.changes)
                assert late.book.in_force.provenance == here.book.in_force.provenance
            assert here.rate("bob") == 6
            assert here.quotas.mode is Mode.OBSERVE

    run(test())


def test_a_missing_topic_is_made_compacted_and_another_kind_is_told_of(
    cluster: Cluster, topic_name: TopicName, lines: list[MutableMapping[str, Any]]
) -> None:
    topic = f"{topic_name('events')}_quotas"
    gateways: list[Gateway] = []

    async def test() -> None:
        gateway = Gateway(settings_of(cluster, topic))
        gateways.append(gateway)
        async with running(gateway):
            await until(lambda: bool(gateway.topic_ids))
        set_topic(cluster, topic, cleanup_policy="compact,delete")
        async with running(Gateway(settings_of(cluster, topic))):
            pass

    run(test())
    (made,) = named(lines, "quotas_topic_created")
    assert (made["partitions"], made["topic"]) == (1, topic)
    (unsafe,) = named(lines, "quotas_topic_unsafe")
    assert (unsafe["setting"], unsafe["value"]) == ("cleanup.policy", "compact,delete")
    assert {len(topic_id) for topic_id in gateways[0].topic_ids} == {16}


def test_what_the_brokers_never_take_is_told_of_and_stops_nothing_else(
    cluster: Cluster, topic_name: TopicName, lines: list[MutableMapping[str, Any]]
) -> None:
    topic = f"{topic_name('events')}_quotas"

    async def test() -> None:
        async with fleet(cluster, topic, 2) as (here, there):
            set_topic(cluster, topic, max_message_bytes="600")
            long, began_s = replace(rate(1), note="n" * 1_000), time.monotonic()
            assert await here.book.change([long]) is Kept.MEMORY
            assert time.monotonic() - began_s < 2.5, "known at once"
            assert here.rate() == 1
            assert await here.book.change([rate(2, "bob")]) is Kept.TOPIC
            await until(lambda: there.rate("bob") == 2)
            assert there.rate() == 100_000
            assert here.book.unwritten == 0

    run(test())
    assert "do not take it" in named(lines, "quota_change_not_kept")[0]["cause"]


def test_the_gateway_takes_no_producer_id(cluster: Cluster, topic_name: TopicName) -> None:
    topic = f"{topic_name('events')}_quotas"

    async def test() -> None:
        async with running(Gateway(settings_of(cluster, topic))) as gateway:
            await gateway.book.change([rate(1)])

    run(test())
    assert len(read_log(cluster.bootstrap_servers(), topic)) == 1
    with ProducerStates(cluster.nodes[1]) as states:
        assert states.ids(topic, [0]) == {0: []}


# Whole gateways


def process_of(cluster: Cluster, topic: str, number: int, **settings: Any) -> GatewayProcess:
    gateway = GatewayProcess(
        cluster.bootstrap_servers(),
        quotas={
            "mode": "enforce",
            "producer_ids": {"window": "10h", "max_throttle": "1s"},
        },
        settings={
            "gateway_id": f"gw-{number}",
            "events": {"topic": topic.removesuffix("_quotas")},
            **settings,
        },
    )
    gateway.config["admin"]["writable"] = True
    return gateway


def post(
    gateway: GatewayProcess, user: str | None, value: float | None, setting: str = "producer_ids_rate"
) -> str:
    """A rate, None: reset. Where it is kept."""
    change = {"setting": setting, "user": user, "action": "reset" if value is None else "set"}
    body = {"changes": [change if value is None else {**change, "value": value}], "set_by": "operator"}
    request = urllib.request.Request(
        f"{gateway.admin_url}/v1/quotas/changes",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token_of(gateway.admin_port)}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["kept"])


def shown(gateway: GatewayProcess, user: str) -> object:
    """The rate that a gateway says to hold for the user."""
    (entry,) = json.loads(gateway.read(f"/v1/quotas?user={user}"))["entries"]
    return entry["effective_rate"]["value"]


async def codes_of_new_ids(gateway: GatewayProcess, topic: str, number: int) -> set[int]:
    """On as many connections."""

    async def one() -> int:
        async with SwarmProducer(gateway.bootstrap_servers, topic) as producer:
            return (await (await producer.begin()).send_once(b"x")).codes[0]

    return set(await asyncio.gather(*(one() for _ in range(number))))


def test_gateways_hold_what_one_of_them_was_told(
    cluster: Cluster, topic_name: TopicName, tmp_path: Path
) -> None:
    topic = f"{topic_name('events')}_quotas"
    written = create_topic(cluster.bootstrap_servers(), topic_name("written"))
    told = process_of(cluster, topic, 0, state_dir=str(tmp_path))
    with told, process_of(cluster, topic, 1) as other:
        delays_ms = []
        for number in range(1, 51):
            began_s = time.monotonic()
            assert post(told, "alice", number) == "topic"
            while shown(other, "alice") != number:
                assert time.monotonic() - began_s < 2.0, other.log_tail()
            delays_ms.append((time.monotonic() - began_s) * 1000)
        median_ms, longest_ms = sorted(delays_ms)[25], max(delays_ms)
        print(
            f"between processes: median {median_ms:.0f} ms, longest {longest_ms:.0f} ms of 50, asked over HTTP"
        )

        async def obeyed() -> list[float]:
            """How long until the other gateway did as one gateway was told."""
            took_ms = []
            for _ in range(5):
                for value, code in ((0, NOT_ENOUGH_REPLICAS), (None, 0)):
                    began_s = time.monotonic()
                    await asyncio.to_thread(post, told, "ANONYMOUS", value)
                    while await codes_of_new_ids(other, written, 8) != {code}:
                        assert time.monotonic() - began_s < 2.0, other.log_tail()
                    took_ms.append((time.monotonic() - began_s) * 1000)
            return took_ms

        took_ms = asyncio.run(obeyed())
        print(f"all connections of the other obeyed within {max(took_ms):.0f} ms, 10 times")

        post(told, "bob", 0)
        told.kill()
        post(other, "carol", 7)
        told.start()
        assert [shown(told, user) for user in ("alice", "bob")] == [50, 0]
        until_true(lambda: shown(told, "carol") == 7)
