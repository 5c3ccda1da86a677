"""Blocks inferred from what passed a real gateway are those that the controller wrote into its metadata log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from pidgate.load.connection import connect
from pidgate.load.context import take_id
from pidgate.load.tally import Tally
from pidgate.pipeline.commands.analyses import write_ids
from pidgate.pipeline.commands.common import pass_over
from pidgate.pipeline.days import EVER
from pidgate.pipeline.engines import results_of
from pidgate.pipeline.passes import IDS
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.schemas import table_schema
from tests.pipeline.made_events import event, write_events
from tests.support.topic_values import every_value
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables

pytestmark = pytest.mark.kafka

NODES = (1, 2)
BLOCK = 1_000
EVENTS_TOPIC = "__events-of-ids"
THROUGH = {1: 2_300, 2: 450}
"""Broker 1 needs three blocks for it. Neither comes near the end of its last one, where it asks for another ahead."""
PAST = 40
"""Ids that broker 2 hands out without the gateway."""
CLIENTS = 20
A_SECOND = 25
"""Ids that a client asks for at once: more than 10 in a second are told as one event, so some of each block have to
come in the next second.
"""


@pytest.fixture(scope="module")
def two_brokers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Fresh ones: no other test has had ids of them."""
    cluster = Cluster(ClusterSpec(node_ids=NODES))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop(keep_logs=request.session.testsfailed > 0)


async def ask_for_ids(address: tuple[str, int], number: int) -> list[int]:
    """By several clients at once, as a fleet would."""

    async def one(name: str, share: int) -> list[int]:
        connection = await connect(address, client_id=name)
        try:
            given = []
            for asked in range(share):
                if asked and asked % A_SECOND == 0:
                    await asyncio.sleep(1.1)
                given.append((await take_id(connection, Tally())).producer_id)
            return given
        finally:
            connection.close()

    shares = [number // CLIENTS + (n < number % CLIENTS) for n in range(CLIENTS)]
    given = await asyncio.gather(*(one(f"client-{address[1]}-{n}", share) for n, share in enumerate(shares)))
    return list(chain.from_iterable(given))


async def transactions(gateway: GatewayProcess, topic: str) -> None:
    """One transactional id in three lives: its id comes back with higher epochs."""
    for _ in range(3):
        producer = AIOKafkaProducer(bootstrap_servers=gateway.bootstrap_servers, transactional_id="payments")
        async with producer, producer.transaction():
            await producer.send_and_wait(topic, b"x")


def recorded_blocks(cluster: Cluster) -> set[tuple[int, int]]:
    """(first id, broker) of each ProducerIdsRecord in the log of the controllers."""
    (log,) = (cluster.directory / f"node-{NODES[0]}").rglob("__cluster_metadata-0/00000000000000000000.log")
    dumped = cluster.tools.run(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log)
    )
    blocks = set()
    for line in dumped.stdout.splitlines():
        _, found, payload = line.partition("payload: ")
        with suppress(json.JSONDecodeError):
            record = json.loads(payload) if found else {}
            if record.get("type") == "PRODUCER_IDS_RECORD":
                blocks.add((record["data"]["nextProducerId"] - BLOCK, record["data"]["brokerId"]))
    return blocks


def test_inferred_blocks_are_those_in_the_metadata_log(two_brokers: Cluster, tables: Tables) -> None:
    direct = two_brokers.bootstrap_servers()
    topic = create_topic(direct, "paid", partitions=1)
    settings = {"events": {"topic": EVENTS_TOPIC, "replication_factor": 1}}
    with GatewayProcess(direct, settings=settings, node_ids=NODES) as gateway:
        for node_id, number in THROUGH.items():
            given = asyncio.run(ask_for_ids(("127.0.0.1", gateway.first_node_port + node_id), number))
            assert len(set(given)) == number
        past = asyncio.run(ask_for_ids(two_brokers.nodes[2], PAST))
        asyncio.run(transactions(gateway, topic))
        assert gateway.stop() == 0
    events = [json.loads(value) for value in asyncio.run(every_value(direct, EVENTS_TOPIC))]
    recorded = recorded_blocks(two_brokers)
    assert len([1 for _, node_id in recorded if node_id == 1]) >= 3

    for event_type in ("init_producer_id", "decision", "id_usage"):
        names = set(table_schema(event_type).names)
        of_type = [
            {k: v for k, v in one.items() if k in names} for one in events if one["type"] == event_type
        ]
        write_events(tables.root, event_type, [event(event_type, **one) for one in of_type])
        assert of_type, event_type
    with replacing(tables) as run:
        write_ids(run, results_of(pass_over(tables, EVER, IDS), run, EVER))
    blocks = tables.query("ids_blocks")
    assert {(row["block_start"], row["node_id"]) for row in blocks} == recorded

    seen, unnamed = (sum(row[name] for row in blocks) for name in ("ids_seen", "ids_unnamed"))
    assert seen + unnamed >= sum(THROUGH.values()), "each id that passed is told, or counted"
    assert unnamed > 0, "there was a storm"
    named = {one["answered_producer_id"] for one in events if one["type"] == "init_producer_id"}
    assert not named & set(past), "what went past the gateway is not in its events"
    (risen,) = tables.query("ids_epochs")
    assert (risen["first_epoch"], risen["exhausted"]) == (0, False)
    assert risen["bumps"] >= 2
