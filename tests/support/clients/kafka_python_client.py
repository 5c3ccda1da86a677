"""kafka-python 3: idempotent by default; five requests per broker, but one batch of each partition, in flight.

And kafka-python 2, which knows no producer ids, for those who run it (old_clients.py).
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from pidgate.load.journal import ProducerJournal, record_value
from tests.support.bearer import jwt
from tests.support.clients.load import ABORTED, Load, Login, Pace, Wish
from tools.sandbox.log_checker import LogRecord

_IS_OLD = kafka.__version__.startswith("2.")


def _common(bootstrap_servers: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers.split(","),
        "client_id": "kafka-python",
    }
    return settings if login is None else settings | _login_settings(login)


def _login_settings(login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": login.protocol}
    if login.ca_file:
        settings["ssl_cafile"] = login.ca_file
    if login.pair_file:
        settings |= {"ssl_certfile": login.pair_file, "ssl_keyfile": login.pair_file}
    if not login.mechanism:
        return settings
    settings["sasl_mechanism"] = login.mechanism
    if login.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": _tokens_of(login.username)}
    return settings | {"sasl_plain_username": login.username, "sasl_plain_password": login.password}


def _tokens_of(user: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider  # not in kafka-python 2

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return jwt(sub=user)

    return Tokens()


def produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    settings = _common(load.bootstrap_servers, load.login) | {
        "max_in_flight_requests_per_connection": load.in_flight,
        # Each record is a batch of its own.
        "batch_size": 0,
    }
    if not _IS_OLD:
        settings["enable_idempotence"] = True
    if load.give_up_s:
        settings["delivery_timeout_ms"] = int(load.give_up_s * 1_000)
        settings["request_timeout_ms"] = min(30_000, int(load.give_up_s * 500))
    if load.retries:
        settings["retries"] = load.retries
    if load.transaction_size:
        _produce_transactions(load, journal, pace, settings)
        return
    producer = KafkaProducer(**settings)
    awaited: list[tuple[int, float, Any]] = []
    for n in pace.numbers():
        where = load.partition_of(n)
        journal.sent(where, n)
        try:
            future = _send(producer, load, journal, n)
        except KafkaError as error:
            journal.failed(where, n, repr(error))
        else:
            if load.awaits_s:
                awaited.append((n, time.monotonic() + load.awaits_s, future))
                continue
            future.add_callback(partial(_acknowledged, journal, where, n))
            future.add_errback(partial(_failed, journal, where, n))
    for n, until_s, future in awaited:
        where = load.partition_of(n)
        try:
            journal.acknowledged(where, n, future.get(max(0.001, until_s - time.monotonic())).offset)
        except KafkaError as error:
            journal.failed(where, n, repr(error))
    producer.flush()
    producer.close()


def _acknowledged(journal: ProducerJournal, partition: int, n: int, metadata: Any) -> None:
    journal.acknowledged(partition, n, metadata.offset)


def _failed(journal: ProducerJournal, partition: int, n: int, error: BaseException) -> None:
    journal.failed(partition, n, repr(error))


def _send(producer: Any, load: Load, journal: ProducerJournal, n: int) -> Any:
    where = load.partition_of(n)
    value = record_value(journal.producer, where, n, load.size_bytes)
    return producer.send(load.topic, value, partition=where)


def _produce_transactions(load: Load, journal: ProducerJournal, pace: Pace, settings: dict[str, Any]) -> None:
    producer = KafkaProducer(**settings, transactional_id=journal.producer)
    producer.init_transactions()
    for numbers, commit in pace.transactions():
        producer.begin_transaction()
        futures = {}
        for n in numbers:
            time.sleep(pace.due_in_s(n))
            journal.sent(load.partition_of(n), n)
            futures[n] = _send(producer, load, journal, n)
        if commit:
            producer.commit_transaction()
            for n, future in futures.items():
                # Raises what became of a record without which kafka-python has committed.
                journal.acknowledged(load.partition_of(n), n, future.get(timeout=10).offset)
        else:
            # Without this the client would drop what it has not sent yet, and nothing were there to abort.
            producer.flush()
            producer.abort_transaction()
            for n in numbers:
                journal.failed(load.partition_of(n), n, ABORTED)
    producer.close()


def consume(wish: Wish) -> Iterator[LogRecord]:
    if wish.protocol != "classic":
        raise NotImplementedError(f"kafka-python has no group protocol {wish.protocol}")
    consumer = KafkaConsumer(
        wish.topic,
        **_common(wish.bootstrap_servers, wish.login),
        group_id=wish.group or None,
        auto_offset_reset="earliest",
        isolation_level=wish.isolation,
        enable_auto_commit=False,
    )
    count = 0
    give_up_s = time.monotonic() + wish.timeout_s
    try:
        while count < wish.records and time.monotonic() < give_up_s:
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    count += 1
                    yield LogRecord(record.partition, record.offset, record.value)
        if count and wish.group:
            consumer.commit()
    finally:
        consumer.close()
