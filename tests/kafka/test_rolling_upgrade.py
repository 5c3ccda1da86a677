"""Gateways of two versions in one fleet, and after one another: what version 1 wrote is remembered and followed.

tests/data holds what version 1 wrote, byte for byte; here only names and ids in it are put in the places of others.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.test_proxy_identity import outcome, plain, produce
from tests.support.fleet import USER, quotas_of, wait_until_heard
from tests.support.raw import RawClient
from tests.support.running_producers import until
from tests.support.swarm import SwarmProducer
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

DATA = Path(__file__).parents[1] / "data"
OF_VERSION_1 = (DATA / "events-v1.jsonl").read_bytes().splitlines()
RUN = b"3b9c55d0e1f2a4b6"
"""Two hours of a gateway of version 1; the other lines of the corpus are made up, to have every type and word."""
NEW_RUN = "0123456789abcdef"
ADMITTED_AND_CHARGED = (3_000, 3_001, 3_002, 3_003, 3_005)
ADMITTED_IN_GRACE = 1_000
REFUSED = (3_004, 3_006, 3_900)
WINDOW_OF_VERSION_1 = {"window": "10m", "remember": "1h"}


def of_version_1(*, ids_from: int = 0, run: bytes = RUN) -> list[bytes]:
    """The corpus, its user "etl" being the one who connects here, its producer ids and its run being others."""

    def moved(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) + ids_from)

    lines = []
    for line in OF_VERSION_1:
        assert line.startswith(b'{"schema_version":1,')
        if RUN in line:
            line = line.replace(b'"user":"etl"', b'"user":"%s"' % USER.encode()).replace(RUN, run)
            line = re.sub(rb'("producer_id":)(\d+)', moved, line)
        lines.append(line)
    return lines


def write(cluster: Cluster, topic: str, lines: Iterable[bytes]) -> None:
    """As a gateway of version 1 does: keyed by user, or by gateway."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers(), "linger.ms": 0})
    for line in lines:
        told = json.loads(line)
        producer.produce(topic, line, key=told["user"] or told["gateway_id"])
    assert producer.flush(20) == 0


@pytest.fixture
def topic(cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    return create_topic(cluster.bootstrap_servers(), topic_name("upgrade"))


@pytest.fixture
def events_topic(cluster: Cluster, topic: str) -> str:
    settings = {"message.timestamp.type": "LogAppendTime"}
    return create_topic(cluster.bootstrap_servers(), f"{topic}-events", partitions=3, config=settings)


async def sent(gateway: GatewayProcess, topic: str, producer_id: int, *, sequence: int = 0) -> int:
    """The answer to one batch of this id over a connection of its own."""
    async with SwarmProducer(gateway.bootstrap_servers, topic) as producer:
        await producer.begin(producer_id)
        producer.sequence = sequence
        (code,) = (await producer.send_once(b"x")).codes
        return code


def test_a_gateway_that_starts_on_a_topic_of_version_1_remembers_it(
    cluster: Cluster, topic: str, events_topic: str
) -> None:
    write(cluster, events_topic, of_version_1(ids_from=8_100_000_000))
    quotas = quotas_of(3, **WINDOW_OF_VERSION_1)
    with GatewayProcess(
        cluster.bootstrap_servers(), quotas=quotas, settings={"events": {"topic": events_topic}}
    ) as gateway:
        (restored,) = gateway.log_events("state_restored")
        assert (restored["restored_from"], restored["unreadable"]) == ("topic", 0)
        # The last balance that was told is -0.95 of a token; 3 come back in ten minutes.
        assert -0.95 <= gateway.metrics().value("pidgate_producer_ids_tokens", user=USER) < -0.6
        for producer_id in (*ADMITTED_AND_CHARGED, ADMITTED_IN_GRACE):
            assert asyncio.run(sent(gateway, topic, 8_100_000_000 + producer_id)) == 0
        for producer_id in REFUSED:
            assert asyncio.run(sent(gateway, topic, 8_100_000_000 + producer_id)) == 19
        metrics = gateway.metrics()
        assert metrics.value("pidgate_producer_ids_admitted_total", reason="first_seen") == 0
        assert metrics.value("pidgate_events_unreadable_total") == 0


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_member_that_writes_version_1_is_followed(
    cluster: Cluster, topic: str, events_topic: str, mode: str
) -> None:
    quotas = {**quotas_of(50), "mode": mode}
    lines = of_version_1(ids_from=8_200_000_000, run=NEW_RUN.encode())
    last = [line for line in lines if b'"phase":"stop"' in line and NEW_RUN.encode() in line]
    with GatewayProcess(
        cluster.bootstrap_servers(),
        quotas=quotas,
        settings={"events": {"topic": events_topic}},
    ) as gateway:
        write(cluster, events_topic, [line for line in lines if line not in last])
        wait_until_heard(cluster, events_topic, gateway)
        charged = 50 - len(ADMITTED_AND_CHARGED)
        tokens = gateway.metrics().value("pidgate_producer_ids_tokens", user=USER)
        assert charged <= tokens < charged + 0.5
        for producer_id in (*ADMITTED_AND_CHARGED, ADMITTED_IN_GRACE):
            assert asyncio.run(sent(gateway, topic, 8_200_000_000 + producer_id)) == 0
        assert gateway.metrics().value("pidgate_producer_ids_admitted_total", user=USER) == 0
        # Refused there: what comes above 0 may have something before it that lies unread there.
        for producer_id in REFUSED:
            assert asyncio.run(sent(gateway, topic, 8_200_000_000 + producer_id, sequence=5)) == 19
        # Workers tell their counts once a second.
        until(
            lambda: (
                gateway.metrics().value("pidgate_requests_refused_total", reason="established")
                == len(REFUSED)
            )
        )

        named = {
            (line["incarnation"], line["setting"]) for line in gateway.log_events("fleet_member_differs")
        }
        assert {(NEW_RUN, "window_ms"), (NEW_RUN, "remember_ms")} <= named
        assert ((NEW_RUN, "mode") in named) == (mode == "observe")
        write(cluster, events_topic, last)
        until(
            lambda: (
                "0123456789abcdef"
                in {line["incarnation"] for line in gateway.log_events("fleet_member_gone")}
            )
        )
        assert gateway.metrics().value("pidgate_events_unreadable_total") == 0


def test_a_gateway_that_starts_on_a_state_directory_of_version_1_remembers_it(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create_topic(sasl_cluster.bootstrap_servers(), topic_name("upgrade"))
    state_dir = tmp_path / "state"
    shutil.copytree(DATA / "state-v1", state_dir)
    # It was recorded in November 2026, and has to be young enough for as long as this test is run.
    quotas = quotas_of(100, window="10h", remember="20000d")
    with GatewayProcess(
        sasl_cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=quotas, settings={"state_dir": str(state_dir)}
    ) as gateway:
        (restored,) = gateway.log_events("state_restored")
        assert (restored["restored_from"], restored["unreadable"]) == ("state_dir", 0)
        assert gateway.log_events("state_file_set_aside") == []
        with RawClient(gateway.bootstrap_servers) as client:
            assert plain(client, "alice", "alice-secret") == 0
            for producer_id in (4_000, 4_030, 4_059, 4_060, 4_062):
                assert outcome(client.ask(produce(topic, producer_id))) == 0
            assert gateway.metrics().value("pidgate_producer_ids_admitted_total", reason="first_seen") == 0
            assert outcome(client.ask(produce(topic, 4_100))) == 0
        assert gateway.metrics().value("pidgate_producer_ids_admitted_total", reason="first_seen") == 1
