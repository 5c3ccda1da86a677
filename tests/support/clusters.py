"""Which Kafka serves the tests that any cluster can serve, and why that one.

In this order: the cluster named by PIDGATE_TEST_BOOTSTRAP, a container where a Docker engine answers,
the sandbox's embedded cluster. The choice is always said, with its reason. Tests that
break brokers or count on an empty cluster use the embedded ones only.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from sandbox import Cluster

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


def docker_refusal() -> str | None:
    """None when a Docker engine answers (and testcontainers is installed), else why not."""
    try:
        import docker  # type: ignore[import-untyped]
        import testcontainers.community  # noqa: F401
        from docker.errors import DockerException  # type: ignore[import-untyped]
    except ImportError as error:
        return f"{error.name} is not installed"
    try:
        client = docker.from_env(timeout=3)
    except DockerException as error:
        return f"no Docker engine answers: {error}"
    try:
        client.ping()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {error}"
    finally:
        client.close()
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
def running(choice: Choice) -> Iterator[str]:
    """The bootstrap servers of the chosen cluster, started if it is ours and stopped again."""
    match choice.kind:
        case Kind.GIVEN:
            yield choice.bootstrap_servers
        case Kind.CONTAINER:
            from testcontainers.community.kafka import KafkaContainer

            with KafkaContainer(CONTAINER_IMAGE).with_kraft() as container:
                yield str(container.get_bootstrap_server())
        case Kind.EMBEDDED:
            with Cluster() as cluster:
                yield cluster.bootstrap_servers()
