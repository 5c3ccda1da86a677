"""confluent-kafka, that is librdkafka: pipelines five batches per broker."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

from pidgate.load.journal import ProducerJournal, record_value
from tests.support.bearer import FAR_FUTURE_S, jwt
from tests.support.clients.load import ABORTED, Load, Login, Pace, Wish
from tools.sandbox.log_checker import LogRecord


def _common(bootstrap_servers: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "client.id": "confluent-kafka"}
    return settings if login is None else settings | login_settings(login)


def login_settings(login: Login) -> dict[str, Any]:
    """What librdkafka is configured with for a login."""
    settings: dict[str, Any] = {"security.protocol": login.protocol}
    if login.ca_file:
        settings["ssl.ca.location"] = login.ca_file
    if login.pair_file:
        settings |= {"ssl.certificate.location": login.pair_file, "ssl.key.location": login.pair_file}
    if not login.mechanism:
        return settings
    settings["sasl.mechanism"] = login.mechanism
    if login.mechanism == "OAUTHBEARER":
        return settings | {"oauth_cb": lambda _: (jwt(sub=login.username), float(FAR_FUTURE_S))}
    return settings | {"sasl.username": login.username, "sasl.password": login.password}


def produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    settings = _common(load.bootstrap_servers, load.login) | {
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": load.in_flight,
    }
    if not load.is_batched:
        # librdkafka fills batches from its queue whatever linger says; the count keeps them small.
        settings |= {"linger.ms": 0, "batch.num.messages": 1}
    if load.give_up_s:
        settings["message.timeout.ms"] = int(load.give_up_s * 1_000)
    if load.retries:
        settings["message.send.max.retries"] = load.retries
    if load.transaction_size:
        _produce_transactions(load, journal, pace, settings)
        return
    producer = Producer(settings)

    def told(n: int, error: Any, message: Any) -> None:
        if error is None:
            journal.acknowledged(load.partition_of(n), n, message.offset())
        else:
            journal.failed(load.partition_of(n), n, error)

    for n in pace.numbers():
        journal.sent(load.partition_of(n), n)
        _send(producer, load, journal, n, lambda error, message, n=n: told(n, error, message))
    producer.flush()


def _send(producer: Any, load: Load, journal: ProducerJournal, n: int, on_delivery: Any) -> None:
    value = record_value(journal.producer, load.partition_of(n), n, load.size_bytes)
    while True:
        try:
            producer.produce(load.topic, value, partition=load.partition_of(n), on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _produce_transactions(load: Load, journal: ProducerJournal, pace: Pace, settings: dict[str, Any]) -> None:
    producer = Producer(settings | {"transactional.id": journal.producer})
    producer.init_transactions(60)
    for numbers, commit in pace.transactions():
        offsets: dict[int, int] = {}

        def told(n: int, error: Any, message: Any, offsets: dict[int, int] = offsets) -> None:
            if error is None:
                offsets[n] = message.offset()

        producer.begin_transaction()
        for n in numbers:
            journal.sent(load.partition_of(n), n)
            _send(producer, load, journal, n, lambda error, message, n=n, told=told: told(n, error, message))
        # Also before an abort: without this the client would drop what it has not sent yet.
        producer.flush()
        ending = ABORTED
        if commit:
            try:
                producer.commit_transaction(60)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                ending = str(error)
            else:
                for n in numbers:
                    journal.acknowledged(load.partition_of(n), n, offsets.get(n))
                continue
        producer.abort_transaction(60)
        for n in numbers:
            journal.failed(load.partition_of(n), n, ending)


def consume(wish: Wish) -> Iterator[LogRecord]:
    if wish.protocol == "share":
        yield from _share(wish)
        return
    settings = _common(wish.bootstrap_servers, wish.login) | {
        # librdkafka wants a name even where no group is joined.
        "group.id": wish.group or "none",
        "group.protocol": wish.protocol,
        "auto.offset.reset": "earliest",
        "isolation.level": wish.isolation,
        "enable.auto.commit": False,
    }
    consumer: Any = Consumer(settings)
    if wish.group:
        consumer.subscribe([wish.topic])
    else:
        partitions = consumer.list_topics(wish.topic, timeout=30).topics[wish.topic].partitions
        consumer.assign([TopicPartition(wish.topic, partition, OFFSET_BEGINNING) for partition in partitions])
    count = 0
    give_up_s = time.monotonic() + wish.timeout_s
    try:
        while count < wish.records and time.monotonic() < give_up_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().retriable() or not message.error().fatal():
                    continue
                raise KafkaException(message.error())
            count += 1
            yield LogRecord(message.partition(), message.offset(), message.value())
        if count and wish.group:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _share(wish: Wish) -> Iterator[LogRecord]:
    # New in 2.16, while the drivers serve older ones.
    from confluent_kafka import ShareConsumer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    settings = _common(wish.bootstrap_servers, wish.login)
    # Where a share group begins is a property of the group, kept by the brokers.
    begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, wish.group, incremental_configs=[begin])
    admin = AdminClient(settings)
    admin.incremental_alter_configs([group])[group].result(timeout=30)
    count = 0
    give_up_s = time.monotonic() + wish.timeout_s
    consumer: Any
    with ShareConsumer(settings | {"group.id": wish.group}) as consumer:
        consumer.subscribe([wish.topic])
        while count < wish.records and time.monotonic() < give_up_s:
            for message in consumer.poll(0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                count += 1
                yield LogRecord(message.partition(), message.offset(), message.value())
        consumer.commit_sync(30.0)
