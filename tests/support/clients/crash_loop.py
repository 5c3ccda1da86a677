"""A service that crashes after its first record and is started again, and again: a new producer id each time.

    python -m tests.support.clients.crash_loop --bootstrap-server H:P --user carol ... --journal F

Each life is a process of its own with a real client (librdkafka): it sends one record, waits a little for
the answer, and ends without saying goodbye. The journal is kept out here, where nothing crashes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from pidgate.load.journal import ProducerJournal, record_value
from tools.sandbox.producers.program import parser_of, stop_signal

_PARTITION = 0
_EXIT_CODE = 70  # os.EX_SOFTWARE
_STARTS_WITHIN_S = 10.0


def _one_life(arguments: argparse.Namespace) -> None:
    """Send one record, print its offset if it is acknowledged in time, and crash."""
    from confluent_kafka import Producer

    def acknowledged(error: object, message: Any) -> None:
        if error is None:
            print(message.offset(), flush=True)

    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap_server,
            "client.id": arguments.client_id,
            "enable.idempotence": True,
            "linger.ms": 0,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": arguments.user,
            "sasl.password": arguments.password,
            "log_level": 0,
        }
    )
    value = record_value(arguments.user, _PARTITION, arguments.life)
    producer.produce(arguments.topic, value, partition=_PARTITION, on_delivery=acknowledged)
    producer.flush(arguments.patience_s)
    os._exit(_EXIT_CODE)


def _loop(arguments: argparse.Namespace, own_arguments: Sequence[str]) -> None:
    journal = ProducerJournal.to_file(arguments.journal, arguments.user, arguments.topic)
    stop = stop_signal()
    life = 0
    while not stop.is_set():
        life += 1
        journal.sent(_PARTITION, life)
        child = subprocess.Popen(
            # Not with a safe path: tests are found in the working directory.
            [sys.executable, "-m", "tests.support.clients.crash_loop", *own_arguments, "--life", str(life)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            offset, _ = child.communicate(timeout=arguments.patience_s + _STARTS_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            offset, _ = child.communicate()
        if offset.strip():
            journal.acknowledged(_PARTITION, life, int(offset))
        time.sleep(arguments.restart_after_s)
    journal.close()


def main(arguments: Sequence[str] | None = None) -> int:
    own_arguments = sys.argv[1:] if arguments is None else arguments
    parser = parser_of("crash_loop")
    parser.add_argument("--patience-s", type=float, default=1.5)
    parser.add_argument("--restart-after-s", type=float, default=0.3)
    parser.add_argument("--life", type=int, default=0, help="live once, as the process that crashes")
    given = parser.parse_args(own_arguments)
    if given.life:
        _one_life(given)
    _loop(given, own_arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
