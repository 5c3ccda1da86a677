"""Producers of seven families through gateways of which one dies: how long each went without an acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Self

from pidgate.load.journal import Outcome, ProducerJournal
from tests.support.clients import old_clients
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

FAMILIES: Final = ("java", "confluent-kafka", "aiokafka", "kafka-python", "sarama", "franz-go", "kafkajs")
PARTITIONS: Final = 3
PER_S: Final = 10
ON_THE_WAY_MS: Final = 1_000
RECORDS: Final = 10_000
"""More than are ever sent: the test says when it is enough."""


class Outage:
    """Use it in a `with` block around the fault; `check` at its end."""

    def __init__(self, brokers: str, servers: str, topic: str, run_by: Sequence[str] = ()) -> None:
        self._brokers = brokers
        self._servers = servers
        self._topic = create_topic(brokers, topic, PARTITIONS)
        self._run_by = run_by
        self._clients: dict[str, ClientProcess] = {}
        self.missing: dict[str, str] = {}
        """Families that cannot be had here, and why."""
        self.fault_s = 0.0
        """How long the fault took: with a restart until the gateway was ready."""

    def __enter__(self) -> Self:
        for number, family in enumerate(FAMILIES):
            if reason := old_clients.why_missing(family):
                self.missing[family] = reason
                continue
            load = Load(
                bootstrap_servers=self._servers,
                topic=self._topic,
                records=RECORDS,
                records_per_s=PER_S,
                partitions=PARTITIONS,
                number=number,
            )
            self._clients[family] = ClientProcess.produce(family, load, run_by=self._run_by)
        for client in self._clients.values():
            client.wait_for_acknowledged(2 * PER_S, 120)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.kill()

    def pauses(self, fault: Callable[[], None], within_s: float) -> dict[str, float]:
        """Have the fault happen; return, by family, the longest pause in acknowledgements since, in s.

        inf: a record that was sent after the fault was not acknowledged within this time.
        """
        began_ms = time.monotonic() * 1000
        fault()
        done_ms = time.monotonic() * 1000
        self.fault_s = (done_ms - began_ms) / 1000
        waiting, pauses = set(self._clients), dict.fromkeys(self._clients, float("inf"))
        while waiting and time.monotonic() * 1000 < done_ms + within_s * 1000:
            time.sleep(0.5)
            for family in list(waiting):
                journal = self._clients[family].journal()
                if _goes_on(journal, done_ms):
                    waiting.discard(family)
                    pauses[family] = _longest_pause_ms(journal, began_ms) / 1000
        return pauses

    def check(self) -> dict[str, str]:
        """End the producers; return, by family, what it had failed. Raises AssertionError: lost, doubled, reordered."""
        for client in self._clients.values():
            client.enough()
        time.sleep(2)
        for client in self._clients.values():
            client.kill()
        journals = {family: client.journal() for family, client in self._clients.items()}
        log = read_log(self._brokers, self._topic)
        raise_if_bad(check(list(journals.values()), log, only_ours=True))
        return {
            family: f"{journal.count(Outcome.FAILED)} failed: {sorted(set(journal.errors()))[:2]}"
            for family, journal in journals.items()
            if journal.count(Outcome.FAILED)
        }


def _goes_on(journal: ProducerJournal, since_ms: float) -> bool:
    """Return whether a record was acknowledged that was sent after this time."""
    entries = (entry for entry in journal.entries.values() if entry.outcome is Outcome.ACKNOWLEDGED)
    if journal.knows_sent:
        return any(entry.sent_ms > since_ms for entry in entries)
    # Java's tells no time of sending: what was on its way has its answer within a second.
    return any(entry.settled_ms > since_ms + ON_THE_WAY_MS for entry in entries)


def _longest_pause_ms(journal: ProducerJournal, since_ms: float) -> float:
    entries = journal.entries.values()
    times = sorted(entry.settled_ms for entry in entries if entry.outcome is Outcome.ACKNOWLEDGED)
    return max((late - early for early, late in pairwise(times) if late > since_ms), default=float("inf"))
