"""`python -m tests.support.clients.run produce|consume CLIENT ERRAND [JOURNAL]`: one client, one process.

`produce` writes its journal to the file; `consume` prints what it read as JSON lines.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pidgate.load.journal import ProducerJournal, verifiable_name
from tests.support.clients.load import Load, Pace, Wish

CLIENTS = {
    "aiokafka": "aiokafka_client",
    "kafka-python": "kafka_python_client",
    "confluent-kafka": "confluent_client",
    "java": "java_client",
    "sarama": "other_client",
    "franz-go": "other_client",
    "kafkajs": "other_client",
}


def producer_name(client: str, load: Load) -> str:
    """The name in the journal and in the values."""
    return verifiable_name(load.number) if client == "java" else f"{client}-{load.number}"


def _module(client: str) -> ModuleType:
    return import_module(f"tests.support.clients.{CLIENTS[client]}")


def _produce(client: str, errand: str, journal_path: str) -> None:
    load = Load.from_json(errand)
    pace = Pace(load)
    pace.stop_at_sigterm()
    journal = ProducerJournal.to_file(
        Path(journal_path), producer_name(client, load), load.topic, knows_sent=client != "java"
    )
    try:
        _module(client).produce(load, journal, pace)
    finally:
        journal.close()


def _consume(client: str, errand: str) -> None:
    for record in _module(client).consume(Wish.from_json(errand)):
        print(json.dumps([record.partition, record.offset, record.value.decode()]), flush=True)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "produce":
        _produce(*arguments)
    else:
        _consume(*arguments)
