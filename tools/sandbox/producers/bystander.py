"""A well-behaved producer: one real client, one producer id for its life, a steady rate, a journal.

    python -m tools.sandbox.producers.bystander --client confluent --user alice ... --journal F --notes N

Runs until it is terminated, then waits a few seconds for what is in flight. What the client itself noticed
(throttles, warnings) goes to the notes file as one JSON object.
"""

import argparse
import asyncio
import itertools
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pidgate.load.journal import ProducerJournal, record_value
from tools.sandbox.producers.program import parser_of, stop_signal

LAST_ANSWERS_S = 60.0
_LAST_SEND_S = 0.5
_LOOK_FOR_STOP_S = 0.1
_VALUE_BYTES = 200
_WARNINGS_KEPT = 50


@dataclass(slots=True)
class Notes:
    """Notes of a client library on its own work."""

    user: str
    client_id: str
    client: str
    refused: int = 0
    """Answers with a throttle time (librdkafka), or with NOT_ENOUGH_REPLICAS (aiokafka)."""
    warnings: list[str] = field(default_factory=list)


def _schedule(arguments: argparse.Namespace) -> Iterator[tuple[float, int, int]]:
    """Yield the records due at a steady rate, partitions in turn: when, the partition, the number within it."""
    began_s = time.monotonic()
    for record in itertools.count():
        n, partition = divmod(record, arguments.partitions)
        yield began_s + record / arguments.per_s, partition, n


def _run_confluent(arguments: argparse.Namespace, journal: ProducerJournal, notes: Notes) -> None:
    from confluent_kafka import KafkaException, Producer

    def throttled(_event: object) -> None:
        notes.refused += 1

    log = logging.getLogger("librdkafka")
    log.addHandler(_Collector(notes))
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap_server,
            "client.id": arguments.client_id,
            "enable.idempotence": True,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": arguments.mechanism,
            "sasl.username": arguments.user,
            "sasl.password": arguments.password,
            "throttle_cb": throttled,
        },
        logger=log,
    )

    def delivery(partition: int, n: int) -> Any:
        def settled(error: object, message: Any) -> None:
            if error is None:
                journal.acknowledged(partition, n, message.offset())
            else:
                journal.failed(partition, n, error)

        return settled

    stop = stop_signal()
    for due_s, partition, n in _schedule(arguments):
        if stop.is_set():
            break
        # Polling is the pause: it serves the callbacks as they come.
        while (left_s := due_s - time.monotonic()) > 0:
            producer.poll(left_s)
        value = record_value(arguments.user, partition, n, _VALUE_BYTES)
        journal.sent(partition, n)
        try:
            producer.produce(arguments.topic, value, partition=partition, on_delivery=delivery(partition, n))
        except (BufferError, KafkaException) as error:
            journal.failed(partition, n, error)
    producer.flush(LAST_ANSWERS_S)


async def _run_aiokafka(arguments: argparse.Namespace, journal: ProducerJournal, notes: Notes) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    logging.getLogger("aiokafka").addHandler(_Collector(notes))
    stop = stop_signal()
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap_server,
        client_id=arguments.client_id,
        enable_idempotence=True,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=arguments.mechanism,
        sasl_plain_username=arguments.user,
        sasl_plain_password=arguments.password,
    )
    await producer.start()

    def delivery(partition: int, n: int) -> Any:
        def settled(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                journal.acknowledged(partition, n, future.result().offset)
            else:
                journal.failed(partition, n, error)

        return settled

    async def send_all() -> None:
        for due_s, partition, n in _schedule(arguments):
            if stop.is_set():
                return
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            value = record_value(arguments.user, partition, n, _VALUE_BYTES)
            journal.sent(partition, n)
            try:
                future = await producer.send(arguments.topic, value, partition=partition)
            except KafkaError as error:
                journal.failed(partition, n, error)
                continue
            future.add_done_callback(delivery(partition, n))

    # send() does not return while the broker is gone and the client's buffer full.
    sending = asyncio.ensure_future(send_all())
    while not (stop.is_set() or sending.done()):
        await asyncio.wait([sending], timeout=_LOOK_FOR_STOP_S)
    _, unfinished = await asyncio.wait([sending], timeout=_LAST_SEND_S)
    for task in unfinished:
        task.cancel()
    try:
        await asyncio.wait_for(producer.stop(), LAST_ANSWERS_S)
    except TimeoutError:
        notes.warnings.append("the last records had no answer")


class _Collector(logging.Handler):
    """Handler that keeps a client library's warnings; aiokafka logs each record sent again as one."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("Got error produce response"):
            self._notes.refused += "NotEnoughReplicas" in text
        if len(self._notes.warnings) < _WARNINGS_KEPT:
            self._notes.warnings.append(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bystander")
    parser.add_argument("--client", choices=("confluent", "aiokafka"), required=True)
    parser.add_argument("--mechanism", default="PLAIN")
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--per-s", type=float, default=100.0)
    parser.add_argument("--notes", type=Path, required=True)
    given = parser.parse_args(arguments)
    logging.lastResort = None
    journal = ProducerJournal.to_file(given.journal, given.user, given.topic)
    notes = Notes(given.user, given.client_id, given.client)
    try:
        if given.client == "confluent":
            _run_confluent(given, journal, notes)
        else:
            asyncio.run(_run_aiokafka(given, journal, notes))
    finally:
        given.notes.write_text(json.dumps(asdict(notes)))
        journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
