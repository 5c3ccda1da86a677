"""Which Kafka serves the tests that any cluster can serve, and why that one.

In this order: the cluster named by PIDGATE_TEST_BOOTSTRAP, a container where a Docker engine answers,
the sandbox's embedded cluster. The choice is always said, with its reason. Tests that
break brokers or count on an empty cluster use the embedded ones only.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

VARIABLE = "PIDGATE_TEST_BOOTSTRAP"
CONTAINER_IMAGE = "confluentinc/cp-kafka:7.9.0"
"""Kafka 3.9; testcontainers starts images of this family only."""


class Kind(StrEnum):
    GIVEN = "given"
    CONTAINER = "container"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Choice:
    """What serves, and the reason in words for people."""

    kind: Kind
    reason: str
    bootstrap_servers: str = ""

    def __str__(self) -> str:
        return f"{self.kind} cluster ({self.reason})"


_PING = "import docker, testcontainers.community.kafka; docker.from_env(timeout=5).ping()"


def docker_refusal(ping: str = _PING) -> str | None:
    """None when testcontainers is installed and a Docker engine answers, else why not.

    Asked in another process: docker's client is slow to import and leaks its socket when nobody answers.
    """
    try:
        subprocess.run([sys.executable, "-c", ping], capture_output=True, text=True, timeout=15, check=True)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"no Docker engine answers: {last_line}"
    except subprocess.TimeoutExpired:
        return "no Docker engine answers: it took more than 15 s"
    return None


def choose(
    environment: Mapping[str, str] = os.environ, refusal: Callable[[], str | None] = docker_refusal
) -> Choice:
    """The cluster for this run; `refusal` tells why no container can be had (None: it can)."""
    if given := environment.get(VARIABLE, "").strip():
        return Choice(Kind.GIVEN, f"{VARIABLE}={given}", given)
    why_not = refusal()
    if why_not is None:
        return Choice(Kind.CONTAINER, f"{VARIABLE} is not set, a Docker engine answers: {CONTAINER_IMAGE}")
    return Choice(Kind.EMBEDDED, f"{VARIABLE} is not set; {why_not}")


@contextmanager
def running(choice: Choice, embedded: Callable[[], str]) -> Iterator[str]:
    """The bootstrap servers of the chosen cluster. A container is started and stopped again; `embedded` gives
    those of the sandbox' cluster, which is asked for only when it was chosen."""
    match choice.kind:
        case Kind.GIVEN:
            yield choice.bootstrap_servers
        case Kind.CONTAINER:
            from testcontainers.community.kafka import KafkaContainer

            with KafkaContainer(CONTAINER_IMAGE).with_kraft() as container:
                yield str(container.get_bootstrap_server())
        case Kind.EMBEDDED:
            yield embedded()
