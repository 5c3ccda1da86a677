"""What was set at run time, and whether the fleet has it, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import counter, gauge
from pidgate.gateway.quotas.store import QuotaStore


class BookCollector(Collector):
    """Families of one book, put together when somebody asks."""

    def __init__(self, book: QuotaStore) -> None:
        self._book = book

    def collect(self) -> Iterator[Metric]:
        book = self._book
        changes = "Changes made at run time that are kept, whether or not the file overrules them."
        yield gauge("quota_changes", changes, len(book.in_force.changes))
        version = "Counts up whenever other quotas are in force."
        yield gauge("quotas_version", version, book.in_force.version)
        read = "1 once the topic of quotas was read to its end, or when there is none."
        yield gauge("quotas_topic_read", read, int(book.is_read))
        failing = "1 while the topic of quotas cannot be read or written; quotas_topic_unavailable says why."
        yield gauge("quotas_topic_failing", failing, int(bool(book.last_failure)))
        unwritten = "Changes that the topic has not got yet: they hold at this gateway only."
        yield gauge("quota_changes_unwritten", unwritten, book.unwritten)
        unreadable = "Records of the topic that could not be read: another version, or not a gateway's."
        yield counter("quotas_topic_unreadable", unreadable, book.unreadable_records)
