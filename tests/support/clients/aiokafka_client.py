"""aiokafka: one batch in flight per partition, so its pipeline is as wide as the topic has partitions."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from pidgate.load.journal import ProducerJournal, record_value
from tests.support.bearer import jwt
from tests.support.clients.load import ABORTED, Load, Login, Pace, Wish
from tools.sandbox.log_checker import LogRecord


def _common(bootstrap_servers: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "client_id": "aiokafka"}
    if aiokafka.__version__.startswith("0.12."):
        # Left to itself it logs in by SaslHandshake v0 until it knows the brokers' versions.
        settings["api_version"] = "2.8.0"
    return settings if login is None else settings | _login_settings(login)


def _login_settings(login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": login.protocol}
    if login.ca_file:
        context = ssl.create_default_context(cafile=login.ca_file)
        if login.pair_file:
            context.load_cert_chain(login.pair_file)
        settings["ssl_context"] = context
    if not login.mechanism:
        return settings
    settings["sasl_mechanism"] = login.mechanism
    if login.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": _Tokens(login.username)}
    return settings | {"sasl_plain_username": login.username, "sasl_plain_password": login.password}


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        self._user = user

    async def token(self) -> str:
        return jwt(sub=self._user)


def produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    asyncio.run(_produce(load, journal, pace))


async def _produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    settings = _common(load.bootstrap_servers, load.login) | {
        "enable_idempotence": True,
        # Each record is a batch of its own.
        "max_batch_size": 1,
    }
    if load.give_up_s:
        settings["request_timeout_ms"] = int(load.give_up_s * 1_000)
    if load.transaction_size:
        await _produce_transactions(load, journal, pace, settings)
        return
    producer = AIOKafkaProducer(**settings)
    await producer.start()
    try:
        # One task per partition: send() waits while the partition's batch is full.
        async with asyncio.TaskGroup() as tasks:
            for partition in range(load.partitions):
                tasks.create_task(_produce_to(partition, producer, load, journal, pace))
    finally:
        await producer.stop()


async def _produce_to(
    partition: int, producer: Any, load: Load, journal: ProducerJournal, pace: Pace
) -> None:
    async with asyncio.TaskGroup() as outcomes:
        for n in range(partition, load.records, load.partitions):
            await asyncio.sleep(pace.due_in_s(n))
            if pace.is_over:
                return
            journal.sent(partition, n)
            value = record_value(journal.producer, partition, n, load.size_bytes)
            try:
                future = await producer.send(load.topic, value, partition=partition)
            except KafkaError as error:
                journal.failed(partition, n, repr(error))
            else:
                outcomes.create_task(_outcome(future, partition, n, journal, load.awaits_s))


async def _outcome(future: Any, partition: int, n: int, journal: ProducerJournal, awaits_s: float) -> None:
    try:
        metadata = await asyncio.wait_for(future, awaits_s or None)
    except (KafkaError, TimeoutError) as error:
        journal.failed(partition, n, repr(error))
    else:
        journal.acknowledged(partition, n, metadata.offset)


async def _produce_transactions(
    load: Load, journal: ProducerJournal, pace: Pace, settings: dict[str, Any]
) -> None:
    producer = AIOKafkaProducer(**settings, transactional_id=journal.producer)
    await producer.start()
    try:
        for numbers, commit in pace.transactions():
            await producer.begin_transaction()
            futures = {}
            for n in numbers:
                where = load.partition_of(n)
                journal.sent(where, n)
                value = record_value(journal.producer, where, n, load.size_bytes)
                futures[n] = await producer.send(load.topic, value, partition=where)
            if commit:
                await producer.commit_transaction()
                for n, future in futures.items():
                    journal.acknowledged(load.partition_of(n), n, future.result().offset)
            else:
                await producer.flush()
                await producer.abort_transaction()
                for n in numbers:
                    journal.failed(load.partition_of(n), n, ABORTED)
    finally:
        await producer.stop()


def consume(wish: Wish) -> Iterator[LogRecord]:
    if wish.protocol != "classic":
        raise NotImplementedError(f"aiokafka has no group protocol {wish.protocol}")
    yield from asyncio.run(_consume(wish))


async def _consume(wish: Wish) -> list[LogRecord]:
    consumer = AIOKafkaConsumer(
        wish.topic,
        **_common(wish.bootstrap_servers, wish.login),
        group_id=wish.group or None,
        auto_offset_reset="earliest",
        isolation_level=wish.isolation,
        enable_auto_commit=False,
    )
    await consumer.start()
    records: list[LogRecord] = []
    try:
        async with asyncio.timeout(wish.timeout_s):
            while len(records) < wish.records:
                record = await consumer.getone()
                records.append(LogRecord(record.partition, record.offset, record.value))
    except TimeoutError:
        pass
    finally:
        if records and wish.group:
            await consumer.commit()
        await consumer.stop()
    return records
