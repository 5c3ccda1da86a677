"""One transaction in two halves, then a whole one. Before the second half, and before the whole one, it waits for a
line on stdin, or for its end.

`python -m tests.support.clients.refused_transaction CLIENT SERVERS TOPIC TIMEOUT_MS HALF`, for the libraries of Python;
tests/support/java/RefusedTransaction.java is the same for Java's. Each prints "half", then lines `outcome`, `ending`
and `after`, each with a tab and what it was: "committed", or an error's name.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

FAILURES = (KafkaException, KafkaError, AiokafkaError, TimeoutError)


class Transacting(Protocol):
    """A producer of some library."""

    def begin(self) -> None: ...
    def send(self, values: list[str]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, servers: str, topic: str, timeout_ms: int) -> None:
        self._topic = topic
        self._errors: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": topic,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, values: list[str]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
        self._producer.flush(60)
        if self._errors:
            raise KafkaException(self._errors.pop())

    def _delivered(self, error: Any, _message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)

    def close(self) -> None:
        """Nothing of it has to be closed."""


class KafkaPython:
    def __init__(self, servers: str, topic: str, timeout_ms: int) -> None:
        self._topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, values: list[str]) -> None:
        futures = [self._producer.send(self._topic, value.encode(), partition=0) for value in values]
        self._producer.flush(60)
        for future in futures:
            future.get(60)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(5)


class Aiokafka:
    def __init__(self, servers: str, topic: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._topic = topic
        self._producer = self._run(self._started(servers, topic, timeout_ms))

    async def _started(self, servers: str, topic: str, timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, 60))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, values: list[str]) -> None:
        for value in values:
            self._run(self._producer.send_and_wait(self._topic, value.encode(), partition=0))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


CLIENTS: dict[str, Callable[[str, str, int], Transacting]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def name_of(error: Exception) -> str:
    """The error's own name; librdkafka's is a code."""
    inner: Any = error.args[0] if error.args else None
    return str(inner.name()) if hasattr(inner, "name") and callable(inner.name) else type(error).__name__


def main(client: str, servers: str, topic: str, timeout_ms: str, half: str) -> None:
    count = int(half)

    def opened() -> Transacting:
        return CLIENTS[client](servers, topic, int(timeout_ms))

    def say(what: str, text: str) -> None:
        print(f"{what}\t{text}", flush=True)

    producer = opened()
    producer.begin()
    producer.send([f"first-{n}" for n in range(count)])
    say("half", "sent")
    sys.stdin.readline()
    outcome, ending = "committed", "none"
    try:
        producer.send([f"first-{n}" for n in range(count, 2 * count)])
        producer.commit()
    except FAILURES as error:
        outcome = name_of(error)
        try:
            producer.abort()
            ending = "aborted"
        except FAILURES as fatal:
            ending = f"new producer after {name_of(fatal)}"
            producer.close()
            producer = opened()
    say("outcome", outcome)
    say("ending", ending)
    sys.stdin.readline()
    producer.begin()
    producer.send([f"after-{n}" for n in range(count)])
    producer.commit()
    say("after", "committed")
    producer.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
