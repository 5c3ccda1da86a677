"""Who is in the matrix: the clients, the Kafka versions behind the gateway, and what a cell is called."""

from dataclasses import dataclass
from typing import Final

from sandbox.jars import NEWEST, OLDEST


@dataclass(frozen=True, slots=True)
class Client:
    """A driver's name, and for Java the version of the jars it runs from."""

    driver: str
    java_version: str = NEWEST

    @property
    def is_java(self) -> bool:
        return self.driver == "java"

    @property
    def is_newest(self) -> bool:
        """One of each family: for what has to be quick."""
        return self.java_version == NEWEST

    def __str__(self) -> str:
        return f"java-{self.java_version}" if self.is_java else self.driver


CLIENTS: Final = (
    Client("aiokafka"),
    Client("kafka-python"),
    Client("confluent-kafka"),
    Client("java", NEWEST),
    Client("java", OLDEST),
)

KAFKAS: Final = (NEWEST, OLDEST)

FEATURES: Final = (
    "produce",
    "fetch",
    "classic group",
    "KIP-848 group",
    "share group",
    "transactions",
    "admin tools",
)

REFUSED_S: Final = (3, 40)


def refused(seconds: int) -> str:
    """The name of the column in which the client is refused for so long."""
    return f"refused {seconds} s"


COLUMNS: Final = (*FEATURES, *map(refused, REFUSED_S))
