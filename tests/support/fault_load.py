"""The traffic that a fault has to be survived by: all sorts of clients, of which the quota refuses a part.

Idempotent producers of Java, librdkafka and two Python libraries, a transactional producer and a consumer group, all
through a gateway that enforces. They begin at the same moment and are more than the quota admits at once: when the
fault comes, some are running and some are refused. Afterwards what each was told is compared with the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Self

from pidgate.load.journal import Outcome
from tests.support.clients.load import Load, Login, Wish
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.log_checker import LogRecord, check, read_log
from tools.sandbox.topics import create_topic

CLIENTS: Final = ("confluent-kafka", "aiokafka", "kafka-python", "java")
PARTITIONS: Final = 3
RECORDS: Final = 500
PER_S: Final = 25
TRANSACTION_RECORDS: Final = 200
TRANSACTION_SIZE: Final = 10
RATE: Final = 2
"""A burst of three, a token each six seconds: two of five producers wait, also those that a restart finds running."""
END_S: Final = 180.0

QUOTAS: Final[dict[str, Any]] = {
    "mode": "enforce",
    "default": {"producer_ids_rate": RATE},
    "producer_ids": {
        "window": "12s",
        "remember": "1h",
        "grace": "0s",
        "max_throttle": "2s",
        "transactional": "enforce",
    },
}


def raise_if_skipped(read: Sequence[LogRecord], log: Sequence[LogRecord]) -> None:
    """Raises AssertionError: a consumer has left something out, or got what is not in the log.

    A group that had to begin anew reads again what it had not committed: it may have stopped before the end.
    """
    for partition in range(PARTITIONS):
        got = {one.offset: one.value for one in read if one.partition == partition}
        there = [(one.offset, one.value) for one in log if one.partition == partition]
        assert got, f"nothing was read of partition {partition}"
        assert sorted(got.items()) == there[: len(got)]


class FaultLoad:
    """Use it in a `with` block around the fault, once the gateway runs; `check` at its end."""

    def __init__(
        self,
        brokers: str,
        servers: str,
        name: str,
        *,
        replication_factor: int = 1,
        tls: tuple[str, str] | None = None,
    ) -> None:
        """`tls`: an address that speaks TLS, and the file of its CA; every other producer and the consumer go there."""
        self.brokers = brokers
        config = {"min.insync.replicas": "2"} if replication_factor > 2 else {}
        self._topic, self._transactional_topic = (
            create_topic(brokers, topic, PARTITIONS, replication_factor=replication_factor, config=config)
            for topic in (name, f"{name}-transactions")
        )
        plain: dict[str, Any] = {"bootstrap_servers": servers}
        over_tls = plain
        if tls is not None:
            over_tls = {"bootstrap_servers": tls[0], "login": Login(mechanism="", ca_file=tls[1])}
        self._ways = (plain, over_tls)
        self._producers: list[ClientProcess] = []

    def __enter__(self) -> Self:
        self._producers = [
            ClientProcess.produce(
                client,
                Load(
                    topic=self._topic,
                    records=RECORDS,
                    records_per_s=PER_S,
                    partitions=PARTITIONS,
                    number=number,
                    **self._ways[number % 2],
                ),
            )
            for number, client in enumerate(CLIENTS)
        ]
        transactions = Load(
            topic=self._transactional_topic,
            records=TRANSACTION_RECORDS,
            records_per_s=PER_S / 2,
            number=9,
            transaction_size=TRANSACTION_SIZE,
            abort_every=5,
            partitions=PARTITIONS,
            **self._ways[0],
        )
        self._transactions = ClientProcess.produce("confluent-kafka", transactions)
        wish = Wish(
            topic=self._topic,
            group=self._topic,
            records=RECORDS * len(CLIENTS),
            timeout_s=END_S,
            **self._ways[1],
        )
        self._consumer = ClientProcess.consume("confluent-kafka", wish)
        self._producers[0].wait_for_acknowledged(1)
        time.sleep(2)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._producers, self._transactions, self._consumer):
            process.kill()

    def wait_until_all_run(self) -> None:
        """Wait until nobody is refused any more: everything to come is of known ids. Raises AssertionError."""
        for producer in (*self._producers, self._transactions):
            producer.wait_for_acknowledged(1)

    def check(self, *gateways: GatewayProcess) -> None:
        """Wait for all clients. Raises AssertionError: something was lost, doubled, half committed or not read."""
        journals = [producer.wait(END_S) for producer in self._producers]
        log = read_log(self.brokers, self._topic)
        raise_if_bad(check(journals, log, only_ours=True))
        counts = {journal.producer: journal.count(Outcome.ACKNOWLEDGED) for journal in journals}
        assert set(counts.values()) == {RECORDS}, (counts, [journal.errors() for journal in journals])
        transactions = self._transactions.wait(END_S)
        committed = read_log(self.brokers, self._transactional_topic, isolation="read_committed")
        verdict = check([transactions], committed, raised_may_be_written=False)
        raise_if_bad(verdict)
        # A transaction that a fault aborts is no loss: the application was told of it.
        assert verdict.acknowledged >= TRANSACTION_RECORDS / 2, transactions.errors()
        raise_if_skipped(self._consumer.records(END_S), log)
        refused = sum(one.metrics().value("pidgate_requests_refused_total") for one in gateways)
        assert refused > 0 or not gateways, "nobody was refused: this was no load with refusals"
        for gateway in gateways:
            assert gateway.log_events("unexpected_error") == []
