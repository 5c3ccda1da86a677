"""Who is in the matrix: the clients, the Kafka versions behind the gateway, and what a cell is called."""

from dataclasses import dataclass
from typing import Final

from pidgate.client_faults import traits_of
from tests.support.clients import old_clients
from tools.sandbox.jars import NEWEST, OLDEST


@dataclass(frozen=True, slots=True)
class Client:
    """A driver's name, and for Java the version of the jars it runs from."""

    driver: str
    java_version: str = NEWEST
    release: str = ""
    """Of a Python client that is got for the run; empty: the installed one."""

    @property
    def is_java(self) -> bool:
        return self.driver == "java"

    @property
    def why_missing(self) -> str:
        """Why it cannot run here; empty: it can. Fetched or built at the first look."""
        return old_clients.why_missing(self.driver, self.release)

    @property
    def is_refused_at_init(self) -> bool:
        """It is refused at InitProducerId, as a refused batch would harm it."""
        if self.driver == "confluent-kafka":
            name, version = "confluent-kafka-python", f"{self.release}-rdkafka-{self.release}"
        else:
            name, version = self.driver, "dev"
        return traits_of(name, version, "").is_refused_at_init

    @property
    def is_newest(self) -> bool:
        """One of each family: for what has to be quick."""
        return self.java_version == NEWEST and not self.release

    def __str__(self) -> str:
        if self.release:
            return f"{self.driver}-{self.release}"
        return f"java-{self.java_version}" if self.is_java else self.driver


CLIENTS: Final = (
    Client("aiokafka"),
    Client("kafka-python"),
    Client("confluent-kafka"),
    Client("java", NEWEST),
    Client("java", OLDEST),
)

_OF_TWO_YEARS_AGO: Final = tuple(
    Client(name, release=release) for name, release in old_clients.RELEASES.items()
)

OTHERS: Final = (*_OF_TWO_YEARS_AGO, Client("sarama"), Client("franz-go"), Client("kafkajs"))
"""Of two years ago, and in other languages: refused only, and only where they can be had or built."""

VERSIONS: Final = (
    *(Client("confluent-kafka", release=release) for release in ("2.0.2", "2.3.0", "2.4.0", "2.5.0", "")),
    *(Client("sarama", release=release) for release in ("1.42.2", "1.43.1", "")),
    *(Client("java", version) for version in ("2.8.2", "3.5.2", OLDEST, NEWEST)),
    Client("kafkajs", release="2.2.3"),
)
"""As they are deployed: the versions around each fault that is known (pidgate/client_faults.py), and the newest."""

LOGIN_CLIENTS: Final = (*CLIENTS, *_OF_TWO_YEARS_AGO)
"""Newest and two years old, of each family: who shows who it is."""

LOGINS: Final = ("mutual TLS", "SCRAM", "OAUTHBEARER", "delegation token", "GSSAPI")
"""Columns of the second matrix: ways of showing who one is (logins.py)."""

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


@dataclass(frozen=True, slots=True)
class Trial:
    """A refusal: how long it lasts, and what the client is told about patience and pace."""

    seconds: int
    give_up_s: int = 0
    """The client's own budget for a record; 0: its default."""
    records_per_s: int = 0
    """0: all at once."""
    at_start: bool = False
    """Refused is not what it sends, but the producer id that it asks for first (refuse_init_producer_id)."""
    records: int = 240
    """Each a batch of its own: 40 a partition, of which clients send five at once where they can."""
    is_batched: bool = False
    """The client fills its batches as it does by default."""
    retries: int = 0
    """The application's setting of tries after the first one, where the client has it; 0: its default."""
    awaits_s: int = 0
    """The application waits so long for the outcome of each record; 0: as long as the client."""

    def __str__(self) -> str:
        if self.retries:
            return f"refused {self.seconds} s with {self.retries} retries"
        if self.awaits_s:
            return f"refused {self.seconds} s and awaited for {self.awaits_s} s"
        if self.is_batched:
            return f"refused {self.seconds} s with {self.records} records queued"
        if self.at_start:
            return f"no id for {self.seconds} s"
        return f"gives up after {self.give_up_s} s" if self.give_up_s else f"refused {self.seconds} s"


SHORT: Final = Trial(3)
LONG: Final = Trial(40)
# At a pace that has records expire, wait and arrive after the admission.
TOO_LONG: Final = Trial(25, give_up_s=15, records_per_s=6)
NO_ID_SHORT: Final = Trial(5, at_start=True)
NO_ID_LONG: Final = Trial(25, at_start=True)
QUEUED: Final = Trial(10, records=20_000, is_batched=True)
TRIALS: Final = (SHORT, LONG, TOO_LONG, NO_ID_SHORT, NO_ID_LONG)

COLUMNS: Final = (*FEATURES, *map(str, TRIALS))

FAMILIES: Final = (
    Client("aiokafka"),
    Client("kafka-python"),
    Client("confluent-kafka"),
    Client("java"),
    Client("franz-go"),
    Client("kafkajs"),
    Client("sarama"),
)
GIVES_UP: Final[dict[Trial, set[str]]] = {
    Trial(10): set(),
    Trial(30): set(),
    # kafkajs gives up the batches in flight; aiokafka's send() waits 40 s for room.
    Trial(125): {"aiokafka", "kafka-python", "java", "kafkajs"},
    # The drivers of the others have no such setting.
    Trial(30, give_up_s=20): {"aiokafka", "kafka-python", "confluent-kafka", "java"},
    Trial(10, retries=3): set(),
    # Three mutes of 10 s, and librdkafka counts otherwise; aiokafka has no such setting.
    Trial(45, retries=3): {"aiokafka", "kafka-python", "java", "franz-go"},
    Trial(125, retries=3): {"aiokafka", "kafka-python", "confluent-kafka", "java", "franz-go", "kafkajs"},
    # What aiokafka and kafka-python give up waiting for is written all the same.
    Trial(30, awaits_s=20): {"aiokafka", "kafka-python", "franz-go"},
}
"""The families that do not have everything acknowledged."""
