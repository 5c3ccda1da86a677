"""Recordings of what Kafka's own clients do: each way of opening producers once, compressed from days into two minutes.

A user for each pattern, and some that show two. Real clients (aiokafka, confluent-kafka, kafka-python) wherever the
pattern is about what a program does with its client; the simple client (recorded_stage.py) where it is about
addresses, which those cannot choose. Nothing is refused: how users are judged must not depend on a quota.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.support.recorded_stage import LastingProducer, Scenario, Stage, password_of

PLAY_S = 110.0
"""An hour of the real thing is about a second of it: a rollout in a day, a CronJob every quarter of an hour."""

LABELS: Mapping[str, frozenset[str]] = {
    "steady-app": frozenset({"steady"}),
    "crashing-app": frozenset({"restart_loop"}),
    "per-error-app": frozenset({"producer_per_error"}),
    "per-batch-app": frozenset({"producer_per_batch"}),
    "per-batch-threads": frozenset({"producer_per_batch"}),
    "random-txn-app": frozenset({"random_transactional_ids"}),
    "rolling-app": frozenset({"rolling_deployment"}),
    "scaling-app": frozenset({"autoscaling"}),
    "cron-app": frozenset({"cron_job"}),
    "nat-office": frozenset({"shared_address"}),
    "namesakes": frozenset({"shared_client_id"}),
    "mixed-app": frozenset({"steady", "producer_per_batch"}),
    "seldom-app": frozenset({"unknown"}),
}
ROGUES = frozenset({"crashing", "per-error", "per-batch", "per-batch-threads", "random-txn", "mixed-rogue"})
"""Client ids whose producers are rogue, all of them."""


def _aiokafka(stage: Stage, user: str, client_id: str, **more: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=stage.gateway().bootstrap_servers,
        client_id=client_id,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password_of(user),
        **{"enable_idempotence": True, **more},
    )


def _librdkafka(stage: Stage, user: str, client_id: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": stage.gateway().bootstrap_servers,
            "client.id": client_id,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            **more,
        }
    )


def _kafka_python(stage: Stage, user: str, client_id: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=[stage.gateway().bootstrap_servers],
        client_id=client_id,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password_of(user),
        enable_idempotence=True,
    )


async def _aio_life(
    stage: Stage, user: str, client_id: str, seconds: float, pause_s: float = 0.5, **more: Any
) -> None:
    """One producer that sends until its time is over, and closes."""
    until_s = time.monotonic() + seconds
    async with _aiokafka(stage, user, client_id, **more) as producer:
        while time.monotonic() < until_s:
            if "transactional_id" in more:
                async with producer.transaction():
                    await producer.send_and_wait(stage.topic, b"x", partition=random.randrange(6))
            else:
                await producer.send_and_wait(stage.topic, b"x", partition=random.randrange(6))
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


def _thread_life(stage: Stage, user: str, client_id: str, seconds: float, pause_s: float) -> None:
    """The same with the clients that have threads of their own, in turn."""
    until_s = time.monotonic() + seconds
    if client_id.endswith("1"):
        python = _kafka_python(stage, user, client_id)
        while time.monotonic() < until_s:
            python.send(stage.topic, b"x", partition=random.randrange(6)).get(timeout=30)
            time.sleep(pause_s)
        python.close()
        return
    producer = _librdkafka(stage, user, client_id)
    while time.monotonic() < until_s:
        producer.produce(stage.topic, b"x", partition=random.randrange(6))
        producer.flush(30)
        time.sleep(pause_s)
    producer.close()


async def _steady(stage: Stage, user: str, size: int) -> None:
    threads = [
        asyncio.to_thread(_thread_life, stage, user, f"{user}-{number}", PLAY_S, 0.7) for number in range(2)
    ]
    more = [_aio_life(stage, user, f"{user}-{number}", PLAY_S, 0.8) for number in range(2, size)]
    await asyncio.gather(*threads, *more)


async def _crashing(stage: Stage) -> None:
    """A process of its own for each life, with librdkafka, that ends without a word."""
    journal = stage.folder / "crashing.jsonl"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.clients.crash_loop",
        "--bootstrap-server", stage.gateway().bootstrap_servers, "--user", "crashing-app",
        "--password", password_of("crashing-app"), "--topic", stage.topic, "--client-id", "crashing",
        "--journal", str(journal), "--restart-after-s", "2.5",
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await asyncio.sleep(PLAY_S)
    process.terminate()
    await process.wait()


async def _per_error(stage: Stage) -> None:
    """Each refusal of the broker (a record that is too large for its topic) makes a new producer."""
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        producer = _aiokafka(stage, "per-error-app", "per-error", max_request_size=4_000_000)
        await producer.start()
        try:
            while time.monotonic() < until_s:
                size = 1_500_000 if random.random() < 0.15 else 100
                await producer.send_and_wait(stage.topic, b"x" * size, partition=random.randrange(6))
                await asyncio.sleep(0.3)
        except KafkaError:
            await asyncio.sleep(0.1)
        finally:
            await producer.stop()


async def _per_batch(stage: Stage, user: str, client_id: str, pause_s: float) -> None:
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        async with _aiokafka(stage, user, client_id) as producer:
            await producer.send_and_wait(stage.topic, b"x", partition=0)
        await asyncio.sleep(pause_s * random.uniform(0.3, 1.7))


async def _per_batch_in_threads(stage: Stage) -> None:
    def one() -> None:
        until_s = time.monotonic() + PLAY_S
        while time.monotonic() < until_s:
            producer = _librdkafka(stage, "per-batch-threads", "per-batch-threads")
            producer.produce(stage.topic, b"x", partition=1)
            producer.flush(30)
            producer.close()
            time.sleep(1.5 * random.uniform(0.5, 1.5))

    await asyncio.gather(*(asyncio.to_thread(one) for _ in range(2)))


async def _random_txn(stage: Stage) -> None:
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        await _aio_life(
            stage, "random-txn-app", "random-txn", 1.5, 0.4, transactional_id=f"app-{uuid.uuid4()}"
        )
        await asyncio.sleep(random.uniform(0.2, 1.5))


async def _rolling(stage: Stage) -> None:
    """Six pods; all are replaced twice, one after the other."""

    async def pod(number: int) -> None:
        for version in range(3):
            begins_s, ends_s = version * 36.0 + number * 1.5, (version + 1) * 36.0 + number * 1.5
            if version == 0:
                begins_s = 0.0
            await _aio_life(stage, "rolling-app", f"rolling-v{version}-{number}", ends_s - begins_s, 0.8)

    await asyncio.gather(*(pod(number) for number in range(6)))


async def _scaling(stage: Stage) -> None:
    """Two waves of load: up to eight pods, and down to two."""

    async def pod(number: int) -> None:
        if number < 2:
            await _aio_life(stage, "scaling-app", f"scaling-{number}", PLAY_S, 0.8)
            return
        for wave in range(2):
            begins_s = wave * 55.0 + 3.0 * number
            await asyncio.sleep(max(0.0, began_s + begins_s - time.monotonic()))
            await _aio_life(stage, "scaling-app", f"scaling-{wave}-{number}", 50.0 - 6.0 * number, 0.8)

    began_s = time.monotonic()
    await asyncio.gather(*(pod(number) for number in range(8)))


async def _cron(stage: Stage) -> None:
    """Every ten seconds by the clock, two short jobs."""
    until_s = time.monotonic() + PLAY_S - 5
    run = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(10.0 - time.monotonic() % 10.0)
        run += 1
        await asyncio.gather(*(_aio_life(stage, "cron-app", f"cron-{run}-{one}", 1.5, 0.3) for one in (0, 1)))


async def _at_addresses(stage: Stage, user: str, client_ids: list[str], hosts: list[str]) -> None:
    """Many processes that come one after the other, from so many addresses, and stay."""

    async def one(client_id: str, host: str, waits_s: float) -> None:
        await asyncio.sleep(waits_s)
        producer = LastingProducer(stage, user, client_id, from_host=host)
        until_s = time.monotonic() + PLAY_S - waits_s
        try:
            while time.monotonic() < until_s:
                await producer.send(random.randrange(6))
                await asyncio.sleep(1.5 * random.uniform(0.5, 1.5))
        finally:
            await producer.close()

    each = enumerate(zip(client_ids, hosts, strict=True))
    await asyncio.gather(*(one(client_id, host, number * 4.0) for number, (client_id, host) in each))


async def _seldom(stage: Stage) -> None:
    await asyncio.sleep(40)
    await _aio_life(stage, "seldom-app", "seldom", 2.0)


async def _all(stage: Stage) -> None:
    # Looking up names takes a thread, too, and those that are there by default all play.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    async with asyncio.TaskGroup() as group:
        for play in (
            _steady(stage, "steady-app", 4),
            _crashing(stage),
            _per_error(stage),
            _per_batch(stage, "per-batch-app", "per-batch", 0.5),
            _per_batch_in_threads(stage),
            _random_txn(stage),
            _rolling(stage),
            _scaling(stage),
            _cron(stage),
            _at_addresses(stage, "nat-office", [f"desk-{n}" for n in range(20)], ["127.0.20.1"] * 20),
            _at_addresses(stage, "namesakes", ["agent"] * 20, [f"127.0.21.{n + 1}" for n in range(20)]),
            _steady(stage, "mixed-app", 4),
            _per_batch(stage, "mixed-app", "mixed-rogue", 1.0),
            _seldom(stage),
        ):
            group.create_task(play)


SCENARIOS: Mapping[str, Scenario] = {
    "patterns": Scenario(
        about="One gateway that observes; each way of opening producers, by real clients, within two minutes",
        quotas={"mode": "observe"},
        play=_all,
        labels=LABELS,
        rogue_clients=ROGUES,
    )
}
