"""A consumer with default fetch settings whose application handles so many bytes a second, in a process of its own.

`python -m tests.support.paced_consumer ADDRESS TOPIC BYTES_PER_S` (0: as fast as it can) reads as alice until SIGTERM,
and prints when it got how many bytes at which offset.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from tests.support.byte_quotas import Moment
from tools.sandbox import guard

USER, PASSWORD = "alice", "alice-secret"


class PacedConsumer:
    """Runs in a `with` block; then `moments` and `offsets` say what it got."""

    def __init__(self, address: str, topic: str, bytes_per_s: float) -> None:
        self.moments: list[Moment] = []
        self.offsets: list[int] = []
        self._directory = guard.temporary_directory("consumer-")
        command = [sys.executable, "-m", "tests.support.paced_consumer", address, topic, str(bytes_per_s)]
        with self._got.open("wb") as got, self._said.open("wb") as said:
            self._process = guard.spawn(command, stdout=got, stderr=said)

    @property
    def _got(self) -> Path:
        return self._directory / "got"

    @property
    def _said(self) -> Path:
        return self._directory / "said"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        guard.ended(self._process)
        said = self._said.read_text(errors="replace")
        for line in self._got.read_text().splitlines():
            at_s, size, offset = line.split()
            self.moments.append((float(at_s), int(size)))
            self.offsets.append(int(offset))
        guard.remove_directory(self._directory)
        assert code == 0, said[-4_000:]


def consume(address: str, topic: str, bytes_per_s: float) -> None:
    from kafka import KafkaConsumer

    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address.split(","),
        auto_offset_reset="earliest",
        group_id=None,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    due_s = time.monotonic()
    while not ends.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                now_s = time.monotonic()
                print(now_s, len(record.value), record.offset)
                if bytes_per_s:
                    # What it was kept waiting for, it does not make good: not by more than half a second.
                    due_s = max(due_s, now_s - 0.5) + len(record.value) / bytes_per_s
                    ends.wait(max(0.0, due_s - now_s))
    consumer.close()


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], float(sys.argv[3]))
