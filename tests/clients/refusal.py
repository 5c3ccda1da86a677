"""One client that is refused for a while, then admitted: how that is brought about, and what it came to.

Each client has a gateway of its own, with a quota of one producer id in so many seconds and nearly no burst.
When the client connects, another producer takes the only token; the client's first batches come milliseconds
later and are refused until the token has grown again. Everything is real: the quota is the only lever.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pidgate.load.journal import Outcome, ProducerJournal
from pidgate.units import counted
from tests.clients.door import Door
from tests.clients.roster import LONG, Client, Trial
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import LogCheckFailed, raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import Verdict, check, read_log
from tools.sandbox.topics import create_topic

PARTITIONS = 6
REFUSED = ("pidgate_producer_ids_refused_total", "pidgate_producer_ids_kept_in_order_total")

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
    records: int
    refused: dict[str, int]
    admitted_after_waiting: int
    gave_up: int
    failed_open: int
    waited_s: float
    """From the first refusal of the client's id to its admission, as the gateway measured it."""
    told_s: float
    """From the knock of the client to the first acknowledgement it was told of."""
    done_s: float
    """From the knock to the last outcome."""
    tokens_back_s: float
    """From the knock until the balance was no longer below zero."""
    inits_refused: int
    ids_taken: int
    """InitProducerId requests of the client that a broker answered."""
    brokers_written_to: set[int]
    brokers: set[int]

    @property
    def raised(self) -> int:
        return self.journal.count(Outcome.FAILED)

    @property
    def never_told(self) -> int:
        """Records of which the application heard nothing."""
        return self.records - self.journal.count(Outcome.ACKNOWLEDGED) - self.raised

    def __str__(self) -> str:
        if self.inits_refused:
            late_s = max(0.0, self.told_s - self.tokens_back_s)
            return (
                f"{counted(self.inits_refused, 'refusal')}; begins {late_s:.1f} s after tokens were back; "
                f"{self.verdict.acknowledged} of {self.records} acknowledged, last told after {self.done_s:.1f} s"
            )
        raised = f", {self.raised} raised ({_types(self.journal.errors())})" if self.raised else ""
        waited = f"in {self.waited_s:.1f} s" if self.admitted_after_waiting else "and no admission"
        raised += f", {self.never_told} never told: it hangs" if self.never_told else ""
        return (
            f"{counted(sum(self.refused.values()), 'refusal')} {waited}; {self.verdict.acknowledged} of "
            f"{self.records} acknowledged{raised}, last told after {self.done_s:.1f} s"
        )


def _types(errors: Iterable[str]) -> str:
    return ", ".join(sorted({_type(error) for error in errors}))


def _type(error: str) -> str:
    """The code of librdkafka, or the class of the exception without its package."""
    if match := re.match(r"KafkaError\{code=(\w+)", error):
        return match[1]
    return error.partition("(")[0].partition(":")[0].rpartition(".")[2]


@dataclass
class RefusedClient:
    """Use as a context manager; `start` returns at once, `finish` waits for the client's end."""

    cluster: Cluster
    client: Client
    trial: Trial
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
                    "producer_ids": {
                        "window": f"{self.trial.seconds * 1_000 + BEYOND_MS}ms",
                        "burst": 0.001,
                        "refuse_init_producer_id": self.trial.at_start,
                    },
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
            records=self.trial.records,
            is_batched=self.trial.is_batched,
            partitions=PARTITIONS,
            give_up_s=self.trial.give_up_s,
            retries=self.trial.retries,
            awaits_s=self.trial.awaits_s,
            records_per_s=self.trial.records_per_s,
        )
        self.process = self._open.enter_context(
            ClientProcess.produce(
                self.client.driver,
                self.load,
                java_version=self.client.java_version,
                release=self.client.release,
            )
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
        journal = self._journal()
        if self.door.failure is not None:
            raise self.door.failure
        metrics = self.gateway.metrics()
        settled_ms = [entry.settled_ms for entry in journal.entries.values() if entry.settled_ms >= 0]
        acknowledged_ms = [
            entry.settled_ms for entry in journal.entries.values() if entry.outcome is Outcome.ACKNOWLEDGED
        ]
        outcomes = "pidgate_producer_ids_outcomes_total"
        inits = int(metrics.value("pidgate_requests_total", api="InitProducerId"))
        inits_refused = int(metrics.value("pidgate_producer_ids_init_refused_total"))
        return Result(
            verdict=check([journal], read_log(self.cluster.bootstrap_servers(), self.topic), only_ours=True),
            journal=journal,
            records=self.trial.records,
            refused={
                dict(labels)["reason"]: int(value)
                for (name, labels), value in metrics.samples.items()
                if name in REFUSED and value
            },
            admitted_after_waiting=int(metrics.value(outcomes, outcome="admitted_after_waiting")),
            gave_up=int(metrics.value(outcomes, outcome="gave_up")),
            failed_open=int(metrics.value("pidgate_quota_failed_open_total")),
            waited_s=metrics.value("pidgate_producer_ids_waited_seconds_sum"),
            told_s=(min(acknowledged_ms, default=self.knocked_ms) - self.knocked_ms) / 1_000,
            done_s=(max(settled_ms, default=self.knocked_ms) - self.knocked_ms) / 1_000,
            # One token was spent, and a thousandth of one had been there.
            tokens_back_s=(self.trial.seconds * 1_000 + BEYOND_MS) * 0.999 / 1_000,
            inits_refused=inits_refused,
            # One is of the producer that spent the token.
            ids_taken=inits - inits_refused - 1,
            brokers_written_to=self._leaders(),
            brokers=set(self.cluster.nodes),
        )

    def _journal(self) -> ProducerJournal:
        gives_up = self.trial.give_up_s or self.trial.seconds > GIVES_UP_AFTER_S
        if gives_up and self.client.driver in HANGS_AFTER_GIVING_UP:
            enough_s = time.monotonic() + self.trial.seconds + HUNG_AFTER_S
            while self.process.is_alive and time.monotonic() < enough_s:
                time.sleep(0.2)
            if self.process.is_alive:
                self.process.kill()
                return self.process.journal()
        return self.process.wait(self.trial.seconds + SETTLED_WITHIN_S)

    def _leaders(self) -> set[int]:
        """The nodes that lead the topic's partitions."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers()})
        partitions = admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        return {partition.leader for partition in partitions.values()}


@contextmanager
def refused_clients(
    cluster: Cluster, clients: Sequence[Client], trial: Trial
) -> Iterator[dict[Client, RefusedClient]]:
    """All of them started, each with its own topic; they wait side by side."""
    with ExitStack() as runs:
        started = {}
        for client in clients:
            topic = f"{trial}-{client}".replace(" ", "-")
            started[client] = runs.enter_context(RefusedClient(cluster, client, trial, topic))
            started[client].start()
        yield started


HANGS_AFTER_GIVING_UP: Final = {"kafka-python"}
"""kafka-python 3.0.12 sends nothing more after a batch of an idempotent producer has expired, and tells nobody of
the rest. It does the same without a gateway, before brokers with too few replicas in sync.
"""

GIVES_UP_AFTER_S: Final = 120
"""kafka-python's delivery_timeout_ms by default."""
HUNG_AFTER_S: Final = 50.0

MAY_RAISE: Final = {("aiokafka", LONG): "KafkaTimeoutError"}
"""aiokafka's send() waits 40 s for room in its accumulator, then tells the application."""

TIMED_OUT: Final = {
    "KafkaTimeoutError",
    "NetworkException",
    "NotEnoughReplicasError",
    "TimeoutException",
    "_MSG_TIMED_OUT",
}
"""What clients say of a record whose time was over. Java names the last error of a batch that it cannot send again any
more: a connection is closed for batches above one that was given up.
"""


def assert_good(client: Client, trial: Trial, result: Result) -> None:
    """Refused as long as wanted, then everything acknowledged once and in order, or raised to the application."""
    try:
        raise_if_bad(result.verdict)
    except LogCheckFailed as bad:
        bad.add_note(f"{result}; refused {result.refused}, {result.inits_refused} InitProducerId")
        raise
    assert result.brokers_written_to == result.brokers
    assert result.failed_open == 0
    if trial.at_start or client.is_refused_at_init:
        _assert_started_in_good_order(result)
        return
    assert sum(result.refused.values()) > 0
    if trial.give_up_s:
        _assert_gave_up_in_good_order(client, trial, result)
        return
    assert result.verdict.unknown == []
    assert result.verdict.acknowledged + result.raised == result.records, str(result)
    assert _types(result.journal.errors()) in {"", MAY_RAISE.get((client.driver, trial))}, str(result)
    assert result.verdict.raised_but_written == []
    assert result.verdict.acknowledged >= PARTITIONS, str(result)
    assert (result.admitted_after_waiting, result.gave_up) == (1, 0)
    # On a busy machine the client may have come late; that it was held is told_s.
    assert 0 < result.waited_s <= trial.seconds + 15
    assert trial.seconds - 1 <= result.told_s
    # Once admitted nothing waits for another mute.
    assert result.done_s <= trial.seconds + 30


def _assert_started_in_good_order(result: Result) -> None:
    """It got one id once tokens were back, and all it had to say went out in order with that."""
    assert result.inits_refused >= 1, str(result)
    assert result.ids_taken == 1, str(result)
    assert result.refused == {}, str(result)
    assert result.verdict.unknown == []
    assert result.verdict.acknowledged == result.records, str(result)
    # The knock is told some milliseconds after the token was spent.
    assert -0.5 <= result.told_s - result.tokens_back_s <= LONGEST_THROTTLE_S + 5, str(result)
    assert result.done_s <= result.told_s + 20


LONGEST_THROTTLE_S: Final = 10.0


def _assert_gave_up_in_good_order(client: Client, trial: Trial, result: Result) -> None:
    assert result.raised > 0, str(result)
    assert {_type(error) for error in result.journal.errors()} <= TIMED_OUT, str(result)
    if result.never_told and client.driver in HANGS_AFTER_GIVING_UP:
        return
    assert result.never_told == 0, str(result)
    assert result.verdict.acknowledged > 0, str(result)
    assert result.told_s >= trial.seconds - 1
