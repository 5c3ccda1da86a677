"""One client that is refused for a while, then admitted: how that is brought about, and what it came to.

Each client has a gateway of its own, with a quota of one producer id in so many seconds and nearly no burst.
When the client connects, another producer takes the only token; the client's first batches come milliseconds
later and are refused until the token has grown again. Everything is real: the quota is the only lever.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sandbox import Cluster
from sandbox.gateway import GatewayProcess
from sandbox.journal import Outcome, ProducerJournal
from sandbox.log_checker import Verdict, check, read_log
from sandbox.topics import create_topic
from tests.clients.door import Door
from tests.clients.roster import Client
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess

PARTITIONS = 6
RECORDS = 240
"""Each a batch of its own: 40 a partition, of which clients send five at once where they can."""

BEYOND_MS = 1_000
"""The token takes this much longer than the refusal that is wanted, for the client to send its first batch."""

_NODE_HOST = "127.0.1.{node_id}"
"""Where clients find the doors of the nodes: the nodes' own ports on other loopback addresses."""

SETTLED_WITHIN_S = 90.0
"""For the client's start, and for draining after its admission, on a busy machine."""


@dataclass(slots=True)
class Result:
    """What the client was told, what the log holds, and what the gateway counted."""

    verdict: Verdict
    journal: ProducerJournal
    refused: dict[str, int]
    admitted_after_waiting: int
    gave_up: int
    failed_open: int
    waited_s: float
    """From the first refusal of the client's id to its admission, as the gateway measured it."""
    untold_s: float
    """From the knock of the client to the first acknowledgement it was told of."""
    done_s: float
    """From the knock to the last outcome."""

    @property
    def raised(self) -> int:
        return self.journal.count(Outcome.FAILED)

    def __str__(self) -> str:
        raised = f", {self.raised} raised ({_types(self.journal.errors())})" if self.raised else ""
        return (
            f"{sum(self.refused.values())} refusals in {self.waited_s:.1f} s; {self.verdict.acknowledged} of "
            f"{RECORDS} acknowledged{raised}, all told after {self.done_s:.1f} s"
        )


def _types(errors: Iterable[str]) -> str:
    return ", ".join(sorted({error.partition("(")[0].partition(":")[0] for error in errors}))


@dataclass
class RefusedClient:
    """Use as a context manager; `start` returns at once, `finish` waits for the client's end."""

    cluster: Cluster
    client: Client
    seconds: int
    topic: str
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "RefusedClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> None:
        """Make topics, gateway and door, and start the client's process."""
        direct = self.cluster.bootstrap_servers()
        create_topic(direct, self.topic, partitions=PARTITIONS)
        create_topic(direct, f"{self.topic}-spent")
        self.gateway = self._open.enter_context(
            GatewayProcess(
                direct,
                node_ids=self.cluster.nodes,
                listener={"advertise": _NODE_HOST},
                quotas={
                    "mode": "enforce",
                    "producer_ids": {"window": f"{self.seconds * 1_000 + BEYOND_MS}ms", "burst": 0.001},
                    "default": {"producer_ids_rate": 1},
                },
            )
        )
        inside = "127.0.0.1"
        for node_id in self.cluster.nodes:
            port = self.gateway.first_node_port + node_id
            self._open.enter_context(Door((_NODE_HOST.format(node_id=node_id), port), (inside, port)))
        self.door = self._open.enter_context(Door((inside, 0), (inside, self.gateway.port), self._spend))
        self.load = Load(
            bootstrap_servers="{}:{}".format(*self.door.address),
            topic=self.topic,
            records=RECORDS,
            partitions=PARTITIONS,
        )
        self.process = self._open.enter_context(
            ClientProcess.produce(self.client.driver, self.load, java_version=self.client.java_version)
        )

    def _spend(self) -> None:
        """Take the token: a producer id that is seen first is admitted, and the balance is below 0."""
        producer = Producer({"bootstrap.servers": self.gateway.bootstrap_servers, "enable.idempotence": True})
        producer.produce(f"{self.topic}-spent", b"spent")
        if producer.flush(20):
            raise TimeoutError("the producer that spends the token was not acknowledged")
        self.knocked_ms = time.monotonic_ns() // 1_000_000

    def finish(self) -> Result:
        """Wait for the client's end and put together what happened. Raises ClientFailed."""
        journal = self.process.wait(self.seconds + SETTLED_WITHIN_S)
        if self.door.failure is not None:
            raise self.door.failure
        metrics = self.gateway.metrics()
        settled_ms = [entry.settled_ms for entry in journal.entries.values() if entry.settled_ms >= 0]
        acknowledged_ms = [
            entry.settled_ms for entry in journal.entries.values() if entry.outcome is Outcome.ACKNOWLEDGED
        ]
        outcomes = "pidgate_producer_ids_outcomes_total"
        return Result(
            verdict=check([journal], read_log(self.cluster.bootstrap_servers(), self.topic), only_ours=True),
            journal=journal,
            refused={
                dict(labels)["reason"]: int(value)
                for (name, labels), value in metrics.samples.items()
                if name == "pidgate_producer_ids_refused_total" and value
            },
            admitted_after_waiting=int(metrics.value(outcomes, outcome="admitted_after_waiting")),
            gave_up=int(metrics.value(outcomes, outcome="gave_up")),
            failed_open=int(metrics.value("pidgate_quota_failed_open_total")),
            waited_s=metrics.value("pidgate_producer_ids_waited_seconds_sum"),
            untold_s=(min(acknowledged_ms) - self.knocked_ms) / 1_000,
            done_s=(max(settled_ms) - self.knocked_ms) / 1_000,
        )

    def leaders(self) -> set[int]:
        """The nodes that lead the topic's partitions."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers()})
        partitions = admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        return {partition.leader for partition in partitions.values()}


@contextmanager
def refused_clients(
    cluster: Cluster, clients: Sequence[Client], seconds: int
) -> Iterator[dict[Client, RefusedClient]]:
    """All of them started, each with its own topic; they wait side by side."""
    with ExitStack() as runs:
        started = {}
        for client in clients:
            topic = f"refused-{seconds}s-{client}"
            started[client] = runs.enter_context(RefusedClient(cluster, client, seconds, topic))
            started[client].start()
        yield started


MAY_RAISE = {("aiokafka", 40): "KafkaTimeoutError"}
"""aiokafka's send() waits 40 s for room in its accumulator, then tells the application."""


def assert_good(run: RefusedClient, result: Result) -> None:
    """Refused as long as wanted, then everything acknowledged once and in order, or raised to the application."""
    result.verdict.raise_if_bad()
    assert run.leaders() == set(run.cluster.nodes), "a topic on all brokers"
    assert result.verdict.unknown == []
    assert result.verdict.acknowledged + result.raised == RECORDS, str(result)
    allowed = MAY_RAISE.get((run.client.driver, run.seconds))
    assert _types(result.journal.errors()) in {"", allowed}, str(result)
    assert result.verdict.raised_but_written == []
    assert result.verdict.acknowledged >= PARTITIONS, str(result)

    assert sum(result.refused.values()) > 0
    assert (result.admitted_after_waiting, result.gave_up, result.failed_open) == (1, 0, 0)
    assert result.waited_s >= run.seconds - 1
    assert result.untold_s >= run.seconds - 1
    assert result.waited_s <= run.seconds + 15
    # Once admitted nothing waits for another mute.
    assert result.done_s <= run.seconds + 30
