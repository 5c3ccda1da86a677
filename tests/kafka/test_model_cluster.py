"""The model cluster of the simulator is like a real one: the same requests, the same answers, the same logs.

Random steps of producers (new ids, epochs right and wrong, duplicates, gaps, broken batches, transactions of version 1
and 2, offsets in them) are sent to the model and to a broker, one after the other; each answer is compared, by error
code, offset and epoch, and at the end every batch of the logs, the markers and what a read_committed consumer is told.
A transaction's end is waited for, so that both are asked at the same point of it.

Then the same through gateways that refuse: a real one before the broker, a simulated one before the model.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from pidgate.load.connection import ConnectionLost
from pidgate.protocol import messages
from tests.simulator.brokers.batches import HEAD_BYTES, BatchHead, read_batch
from tests.simulator.brokers.caller import Caller
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.random_steps import RandomSteps
from tests.simulator.brokers.same_steps import (
    PARTITIONS,
    Client,
    InitProducerId,
    Outcome,
    Side,
    Step,
    fetch_session_outcomes,
)
from tests.simulator.brokers.through_a_gateway import SimulatedGatewayClient
from tests.simulator.machine import Machine
from tests.support.broker_logs import fetched, whole_batches
from tests.support.frames import batch_of_values
from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

STEPS = 15
CLOSED = ("closed",)
REFUSED = 19
OFFSET_FETCH, DESCRIBE_TRANSACTIONS = 9, 65

Batch = tuple[int, int, int, int, int, bool, bool | None]
"""Base offset, number of the id, epoch, base sequence, records, transactional, whether a marker commits."""


class _ReturningClient(RawClient):
    """Connects anew for the request after one whose connection was closed."""

    def ask(self, framed: bytes) -> bytes:
        try:
            return super().ask(framed)
        except ConnectionLost:
            address = self.socket.getpeername()
            self.close()
            RawClient.__init__(self, address, timeout_s=30)
            raise


def _real(servers: str, topic: str, now_ms: int) -> Side:
    client = _ReturningClient(servers, timeout_s=30)
    topic_id = _topic_id(client, topic)

    def settled(transactional_id: str) -> None:
        while True:
            body = {"transactional_ids": [transactional_id]}
            (state,) = client.call(DESCRIBE_TRANSACTIONS, 0, body)["transaction_states"]
            if not state["transaction_state"].startswith("Prepare"):
                return

    return Side(client, topic, topic_id, now_ms, settled)


def _topic_id(client: Client, topic: str) -> bytes:
    """Ask for it, which tells a gateway that name and id are one."""
    found = client.call(messages.METADATA, 12, {"topics": [{"topic_id": UUID(int=0), "name": topic}]})
    return UUID(str(found["topics"][0]["topic_id"])).bytes


def _model(topic: str, now_ms: int) -> Side:
    cluster = ModelCluster(1, {topic: PARTITIONS}, first_producer_id=1_000_000, now_ms=now_ms)
    return _model_of(cluster, topic, now_ms)


def _model_of(cluster: ModelCluster, topic: str, now_ms: int) -> Side:
    topic_id = cluster.topics.by_name[topic].topic_id
    return Side(Caller(cluster), topic, topic_id, now_ms, lambda _: None)


def _warm_up(side: Side) -> None:
    """Internal topics are created, coordinators loaded, a block of producer ids is there."""
    transactional_id, group = f"{side.topic}-warm", f"group-{side.topic}"
    for key, key_type in ((transactional_id, 1), (group, 0)):
        while side.client.call(10, 3, {"key": key, "key_type": key_type})["error_code"]:
            time.sleep(0.1)
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    while side.client.call(messages.INIT_PRODUCER_ID, 1, body)["error_code"]:
        time.sleep(0.1)


@pytest.mark.parametrize(
    "schedules", [range(200), pytest.param(range(200, 2200), marks=pytest.mark.nightly)], ids=["200", "2000"]
)
def test_a_real_broker_answers_and_holds_what_the_model_says(
    cluster: Cluster, topic_name: Callable[[str], str], schedules: range
) -> None:
    servers = cluster.bootstrap_servers()
    now_ms = time.time_ns() // 1_000_000
    topic = create_topic(servers, topic_name("model-cluster"), PARTITIONS)
    real, model = _real(servers, topic, now_ms), _model(topic, now_ms)
    assert isinstance(real.client, RawClient)
    with real.client:
        for side in (real, model):
            _warm_up(side)
        errors = Counter(code for number in schedules for code in _compare_answers(real, model, number))
        print("error codes compared:", dict(sorted(errors.items())))
        assert len(errors) > 10
        for partition in range(PARTITIONS):
            expected, found = _model_log(model, partition), _real_log(real, partition)
            assert len(expected[0]) > len(schedules)
            assert found == expected
        assert _real_offsets(real) == _model_offsets(model)


def test_fetch_sessions_are_those_of_the_model(cluster: Cluster, topic_name: Callable[[str], str]) -> None:
    servers, name = cluster.bootstrap_servers(), topic_name("model-sessions")
    create_topic(servers, name)
    records = batch_of_values(-1, -1, -1, 1, b"v")
    expected = fetch_session_outcomes(Caller(ModelCluster(1, {name: 1})), name, records)
    with RawClient(servers) as client:
        _await_leader(client, name)
        assert fetch_session_outcomes(client, name, records) == expected


def _await_leader(client: RawClient, topic: str) -> None:
    """Return when the broker has heard that it leads the topic."""
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    while client.call(2, 5, {"topics": [asked]})["topics"][0]["partitions"][0]["error_code"]:
        time.sleep(0.05)


def _played(step: Step, side: Side) -> Outcome:
    try:
        return step.play(side)
    except ConnectionLost:
        return CLOSED


def _compare_answers(real: Side, model: Side, number: int) -> Iterator[int | str]:
    """Play one schedule; yield the error codes that both answered with."""
    steps = RandomSteps(Random(number), f"{real.topic}-{number}")
    story = []
    transactional_ids: dict[str, None] = {}
    for n in itertools.count():
        if n < STEPS:
            step = steps.next()
        elif transactional_ids:
            # What is open is aborted: it would hide all that comes after it from a read_committed consumer.
            step = InitProducerId(4, transactional_ids.popitem()[0])
        else:
            return
        expected, found = _played(step, model), _played(step, real)
        story.append(f"{step}\n    {expected}")
        assert found == expected, f"schedule {number}: Kafka says {found}\n" + "\n".join(story)
        if expected == CLOSED:
            yield expected[0]
        elif n < STEPS:
            steps.came(step, expected)
            if isinstance(step, InitProducerId) and step.transactional_id and expected[0] == 0:
                transactional_ids[step.transactional_id] = None
            yield from _codes(expected)


IDS = {"window": "1h", "max_throttle": "100ms", "grace": "0s"}
RATE = 8
"""Whatever the machine's speed: no token comes back while a group of schedules is played."""
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"transactional": "enforce"},
    {"refuse_init_producer_id": True, "transactional": "enforce"},
)
PER_GATEWAY = 5


@pytest.mark.parametrize(
    "groups", [range(3), pytest.param(range(3, 43), marks=pytest.mark.nightly)], ids=["15", "200"]
)
def test_a_real_gateway_answers_and_lets_pass_what_the_simulated_one_does(
    cluster: Cluster, topic_name: Callable[[str], str], groups: range
) -> None:
    servers = cluster.bootstrap_servers()
    errors: Counter[int | str] = Counter()
    for group in groups:
        ids = IDS | OPTIONS[group % len(OPTIONS)]
        quotas = {"mode": "enforce", "default": {"producer_ids_rate": RATE}, "producer_ids": ids}
        topic = create_topic(servers, topic_name(f"model-gateway-{group}"), PARTITIONS)
        errors += _compare_gateways(servers, topic, quotas, group)
    print("error codes compared:", {str(code): count for code, count in errors.items()})
    assert errors[REFUSED] > 5 * len(groups), "the gateways had something to refuse"
    assert errors[0] > 5 * len(groups), "and something to let pass"


def test_a_simulated_gateway_with_another_quota_is_noticed(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name("model-gateway-mutant"), PARTITIONS)
    quotas = {"mode": "enforce", "default": {"producer_ids_rate": RATE}, "producer_ids": IDS}
    other = {**quotas, "default": {"producer_ids_rate": 1}}
    with pytest.raises(AssertionError, match="Kafka says"):
        _compare_gateways(servers, topic, quotas, 0, of_the_simulated_one=other)


def _compare_gateways(
    servers: str,
    topic: str,
    quotas: dict[str, Any],
    group: int,
    of_the_simulated_one: dict[str, Any] | None = None,
) -> Counter[int | str]:
    """Play some schedules through two gateways that begin; return the error codes that both answered with."""
    now_ms = time.time_ns() // 1_000_000
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(group))
        gateway = stack.enter_context(GatewayProcess(servers, quotas=quotas))
        direct = _real(servers, topic, now_ms)
        stack.enter_context(_connection(direct))
        model_cluster = ModelCluster(
            1, {topic: PARTITIONS}, first_producer_id=1_000_000, now_ms=int(machine.loop.time() * 1000)
        )
        in_memory = _model_of(model_cluster, topic, now_ms)
        for side in (direct, in_memory):
            _warm_up(side)
        through = SimulatedGatewayClient(machine, model_cluster, of_the_simulated_one or quotas)
        stack.callback(through.end)
        real = _real(f"127.0.0.1:{gateway.first_node_port + 1}", topic, now_ms)
        stack.enter_context(_connection(real))
        model = replace(in_memory, client=through)
        assert _topic_id(through, topic) == model.topic_id
        errors = Counter(
            code
            for number in range(group * PER_GATEWAY, (group + 1) * PER_GATEWAY)
            for code in _compare_answers(real, model, number)
        )
        direct.ids, in_memory.ids = real.ids, model.ids
        for partition in range(PARTITIONS):
            assert _real_log(direct, partition) == _model_log(in_memory, partition)
    return errors


def _connection(side: Side) -> RawClient:
    assert isinstance(side.client, RawClient)
    return side.client


def _model_offsets(side: Side) -> int:
    assert isinstance(side.client, Caller)
    committed = side.client.cluster.transactions.offsets.committed
    return committed[f"group-{side.topic}", side.topic, 0]


def _real_offsets(side: Side) -> int:
    body = {"group_id": f"group-{side.topic}", "topics": [{"name": side.topic, "partition_indexes": [0]}]}
    answer = side.client.call(OFFSET_FETCH, 5, body)
    offset: int = answer["topics"][0]["partitions"][0]["committed_offset"]
    return offset


def _codes(outcome: tuple[Any, ...]) -> list[int]:
    return [part[1] for part in outcome] if isinstance(outcome[0], tuple) else [outcome[0]]


def _model_log(side: Side, partition: int) -> tuple[list[Batch], list[tuple[int, int]], int]:
    assert isinstance(side.client, Caller)
    found = side.client.cluster.partition(side.topic, partition)
    batches = [
        (
            entry.base_offset,
            side.number(entry.producer_id),
            entry.epoch,
            entry.base_sequence,
            entry.records,
            entry.is_transactional,
            entry.commits,
        )
        for entry in found.log
    ]
    aborted = found.aborted_in(0, found.end_offset)
    numbered = sorted((side.number(producer_id), first) for producer_id, first in aborted)
    return batches, numbered, found.last_stable_offset


def _real_log(side: Side, partition: int) -> tuple[list[Batch], list[tuple[int, int]], int]:
    """As a read_committed consumer is given it: no transaction is open, so it is all of the log."""
    batches: list[Batch] = []
    aborted: dict[tuple[int, int], None] = {}
    while True:
        offset = batches[-1][0] + batches[-1][4] if batches else 0
        part = fetched(_connection(side), side.topic, partition, offset)
        for found in part.aborted_transactions or ():
            aborted[side.number(found.producer_id), found.first_offset] = None
        if not part.records:
            return batches, sorted(aborted), part.last_stable_offset
        batches += [_batch(side, raw) for raw in whole_batches(part.records)]


def _batch(side: Side, raw: bytes) -> Batch:
    head = read_batch(raw)
    assert isinstance(head, BatchHead)
    (base_offset,) = struct.unpack_from(">q", raw)
    commits = raw[HEAD_BYTES + 8] == 1 if head.attributes & 0x20 else None
    return (
        base_offset,
        side.number(head.producer_id),
        head.epoch,
        head.base_sequence,
        head.records,
        head.is_transactional,
        commits,
    )
