"""Kafka and pidgate for tests of your application; copy this file beside them.

Kafka is a container (testcontainers), or the cluster that KAFKA_BOOTSTRAP_SERVERS names. pidgate runs on this machine,
from the same environment as pytest.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The brokers' addresses."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield given
        return
    from testcontainers.kafka import KafkaContainer

    with KafkaContainer("confluentinc/cp-kafka:7.9.0").with_kraft() as container:
        yield container.get_bootstrap_server()


@dataclass
class Gateway:
    """A gateway that enforces a low quota."""

    bootstrap_servers: str
    admin: str

    def new_producer_ids(self) -> int:
        """Return how many producer ids have passed, from /metrics."""
        return self._sum("pidgate_producer_ids_admitted_total")

    def refused(self) -> int:
        """Return how many requests were refused."""
        return self._sum("pidgate_requests_refused_total")

    def _sum(self, name: str) -> int:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return int(
            sum(
                float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} "))
            )
        )


@pytest.fixture
def gateway(kafka: str, tmp_path: Path, free_ports: Callable[[int], int]) -> Iterator[Gateway]:
    """Two new producer ids pass at once, then one every five seconds."""
    admin, port, node_ports = (free_ports(number) for number in (1, 1, 10))
    file = tmp_path / "pidgate.yaml"
    file.write_text(f"""
cluster: {{bootstrap_servers: [{kafka}]}}
listeners:
  - {{bind: "127.0.0.1:{port}", advertise: 127.0.0.1, node_ports: {{first: {node_ports}}}}}
quotas:
  mode: enforce
  default: {{producer_ids_rate: 1}}
  producer_ids: {{window: 5s, grace: 0s}}
events: {{enabled: false}}
admin: {{bind: "127.0.0.1:{admin}"}}
""")
    with subprocess.Popen([sys.executable, "-m", "pidgate", "run", "--config", file]) as process:
        try:
            give_up_s = time.monotonic() + 120
            while not is_ready(admin):
                assert process.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.1)
            yield Gateway(f"127.0.0.1:{port}", f"127.0.0.1:{admin}")
        finally:
            process.terminate()


def is_ready(admin: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], int]:
    """Find that many free ports in a row, and return the first."""

    def first_of(number: int) -> int:
        while True:
            with ExitStack() as stack:
                first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                with suppress(OSError, OverflowError):
                    for port in range(first + 1, first + number):
                        stack.enter_context(socket.create_server(("127.0.0.1", port)))
                    return int(first)

    return first_of
