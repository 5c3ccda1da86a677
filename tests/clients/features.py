"""What each client is put through besides refusals: one function a feature, judged by what the brokers hold."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import aiokafka
import confluent_kafka

from pidgate.load.journal import Outcome, ProducerJournal
from tests.clients.administration import PARTITIONS as ADMINISTERED_PARTITIONS
from tests.clients.administration import RETENTION_MS, administer
from tests.clients.roster import Client
from tests.support.clients import java_tools
from tests.support.clients.load import ABORTED, Load, Wish
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import LogRecord, check, read_log
from tools.sandbox.performance import consume_performance, produce_performance
from tools.sandbox.tools import JavaTools
from tools.sandbox.topics import create_topic

PARTITIONS: Final = 6
RECORDS: Final = 120


class NotOffered(Exception):
    """The client cannot do this with this Kafka, without a gateway neither."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A client, the gateway it is to use, and the cluster behind, for looking directly."""

    client: Client
    cluster: Cluster
    gateway: GatewayProcess
    topic: str

    @property
    def direct(self) -> str:
        return self.cluster.bootstrap_servers()

    @property
    def servers(self) -> str:
        """The gateway: all that the client knows."""
        return self.gateway.bootstrap_servers

    @property
    def tools(self) -> JavaTools:
        return JavaTools(self.client.java_version)

    def make_topic(self, name: str = "", partitions: int = PARTITIONS) -> str:
        return create_topic(self.direct, name or self.topic, partitions=partitions)

    def produce(self, load: Load, client: Client | None = None) -> ProducerJournal:
        client = client or self.client
        return ClientProcess.produce(client.driver, load, java_version=client.java_version).wait()

    def wish(self, group: str) -> Wish:
        return Wish(bootstrap_servers=self.servers, topic=self.topic, group=group, records=RECORDS)

    def fill(self) -> list[LogRecord]:
        """The topic with records that did not come through the gateway."""
        topic = self.make_topic()
        load = Load(bootstrap_servers=self.direct, topic=topic, records=RECORDS, partitions=PARTITIONS)
        self.produce(load, Client("confluent-kafka"))
        log = read_log(self.direct, topic)
        assert len(log) == RECORDS
        return log


def not_offered(client: Client, feature: str, kafka: str) -> str | None:
    """Why there can be no such cell: what the library or the broker itself lacks; None when neither does."""
    if feature == "share group" and kafka == OLDEST:
        return f"Kafka {kafka} has no share groups"
    if feature in ("share group", "KIP-848 group"):
        known = _SHARE[client.driver] if feature == "share group" else _KIP_848[client.driver]
        if not known(client):
            return f"{client} has no {feature}s"
    return None


def _kafka_python_knows(request: str) -> bool:
    """Looked up in its source, since importing it warns on Python 3.11."""
    found = find_spec("kafka")
    assert found is not None
    assert found.origin is not None
    coordinator = Path(found.origin).parent / "coordinator"
    return any(request in source.read_text() for source in coordinator.rglob("*.py"))


_SHARE: Final[Mapping[str, Callable[[Client], bool]]] = {
    "aiokafka": lambda _: any("Share" in name for name in dir(aiokafka)),
    "kafka-python": lambda _: _kafka_python_knows("ShareGroupHeartbeat"),
    "confluent-kafka": lambda _: hasattr(confluent_kafka, "ShareConsumer"),
    "java": lambda client: client.java_version != OLDEST,
}


_KIP_848: Final[Mapping[str, Callable[[Client], bool]]] = {
    "aiokafka": lambda _: (
        "group_protocol" in inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters
    ),
    "kafka-python": lambda _: _kafka_python_knows("ConsumerGroupHeartbeat"),
    "confluent-kafka": lambda _: True,
    "java": lambda _: True,
}


def _produce(bench: Bench) -> str:
    topic = bench.make_topic()
    load = Load(bootstrap_servers=bench.servers, topic=topic, records=RECORDS, partitions=PARTITIONS)
    journal = bench.produce(load)
    verdict = check([journal], read_log(bench.direct, topic), only_ours=True)
    raise_if_bad(verdict)
    assert verdict.acknowledged == verdict.in_log == RECORDS
    if not bench.client.is_java:
        return ""
    fast = bench.make_topic(f"{topic}-fast")
    produce_performance(bench.tools, bench.servers, fast, 20_000)
    assert len(read_log(bench.direct, fast)) == 20_000
    return "VerifiableProducer, ProducerPerformance"


def _fetch(bench: Bench) -> str:
    log = bench.fill()
    if not bench.client.is_java:
        assert _consumed(bench, bench.wish("")) == log
        return "without a group"
    assert consume_performance(bench.tools, bench.servers, bench.topic, RECORDS).records == RECORDS
    first = [record.value.decode() for record in log if record.partition == 0]
    printed = bench.tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bench.servers, "--topic", bench.topic),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(len(first))),
    )
    assert printed.stdout.split() == first
    return "ConsumerPerformance, ConsoleConsumer"


def _consumed(bench: Bench, wish: Wish) -> list[LogRecord]:
    process = ClientProcess.consume(bench.client.driver, wish, java_version=bench.client.java_version)
    return sorted(process.records(), key=lambda record: (record.partition, record.offset))


def _group(protocol: str, tool: str, bench: Bench) -> str:
    log = bench.fill()
    if protocol == "consumer" and bench.cluster.spec.version == OLDEST:
        _try_preview(bench)
    wish = replace(bench.wish(f"{bench.topic}-readers"), protocol=protocol)
    assert _consumed(bench, wish) == log
    if protocol != "share":
        # What was committed through the gateway is where a second member goes on.
        again = replace(wish, records=1, timeout_s=8.0)
        assert _consumed(bench, again) == []
    return tool if bench.client.is_java else ""


def _try_preview(bench: Bench) -> None:
    """Kafka 3.9 has KIP-848 as a preview, which not every client speaks: asked directly. Raises NotOffered."""
    alone = replace(bench.wish(f"{bench.topic}-direct"), protocol="consumer", timeout_s=20.0)
    if not _consumed(bench, replace(alone, bootstrap_servers=bench.direct)):
        raise NotOffered(
            f"reads nothing in a KIP-848 group of Kafka {OLDEST}, where that is a preview; directly neither"
        )


def _transactions(bench: Bench) -> str:
    if bench.client.is_java:
        return _copy(bench)
    topic = bench.make_topic()
    load = Load(
        bootstrap_servers=bench.servers,
        topic=topic,
        records=RECORDS,
        partitions=PARTITIONS,
        transaction_size=RECORDS // 10,
        abort_every=2,
    )
    journal = bench.produce(load)
    assert journal.count(Outcome.ACKNOWLEDGED) == RECORDS // 2
    assert journal.errors() == {ABORTED: RECORDS // 2}
    committed = read_log(bench.direct, topic, isolation="read_committed")
    verdict = check([journal], committed, raised_may_be_written=False, only_ours=True)
    raise_if_bad(verdict)
    assert verdict.in_log == RECORDS // 2
    return "half committed, half aborted"


def _copy(bench: Bench) -> str:
    source = bench.make_topic(f"{bench.topic}-source", 1)
    target = bench.make_topic(partitions=1)
    load = Load(bootstrap_servers=bench.direct, topic=source, records=RECORDS)
    journal = bench.produce(load, Client("confluent-kafka"))
    java_tools.copy_transactionally(bench.tools, bench.servers, source, target, random_aborts=True)
    copy = read_log(bench.direct, target, isolation="read_committed")
    verdict = check([journal], copy, only_ours=True, same_offsets=False)
    raise_if_bad(verdict)
    assert verdict.in_log == RECORDS
    return "TransactionalMessageCopier with aborts"


def _admin(bench: Bench) -> str:
    seen = administer(bench.client, bench.servers, bench.topic)
    first_port = bench.gateway.first_node_port
    assert sorted(seen.nodes) == [
        (node_id, "127.0.0.1", first_port + node_id) for node_id in sorted(bench.cluster.nodes)
    ]
    assert (seen.partitions, seen.retention_ms) == (ADMINISTERED_PARTITIONS, RETENTION_MS)
    assert bench.topic not in seen.topics_left
    if not bench.client.is_java:
        return "topics, configs, cluster, groups"
    return "TopicCommand, ConfigCommand, ConsumerGroupCommand, BrokerApiVersionsCommand"


CHECKS: Final[Mapping[str, Callable[[Bench], str]]] = {
    "produce": _produce,
    "fetch": _fetch,
    "classic group": partial(_group, "classic", "VerifiableConsumer"),
    "KIP-848 group": partial(_group, "consumer", "VerifiableConsumer"),
    "share group": partial(_group, "share", "VerifiableShareConsumer"),
    "transactions": _transactions,
    "admin tools": _admin,
}
"""Each raises when something is not as it should be, NotOffered when it cannot be, and returns what was done."""
