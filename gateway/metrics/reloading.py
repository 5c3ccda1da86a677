"""Whether the configuration file was taken the last time it was read, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import counter, gauge
from pidgate.gateway.quotas.reloading import Reloading


class ReloadCollector(Collector):
    """Families of one Reloading, put together when somebody asks; none without a file."""

    def __init__(self, reloading: Reloading) -> None:
        self._reloading = reloading

    def collect(self) -> Iterator[Metric]:
        reloading = self._reloading
        if reloading.file is None:
            return
        good = "1 when the configuration file was taken the last time it was read; 0: refused, the old one holds."
        yield gauge("config_last_reload_successful", good, int(reloading.is_last_good))
        when = "When the configuration file was last taken, since 1970."
        yield gauge("config_last_reload_timestamp_seconds", when, reloading.last_good_wall_ms / 1000)
        results = {result: reloading.results[result] for result in ("applied", "unchanged", "refused")}
        reads = "Times the configuration file was read again while the gateway runs."
        yield counter("config_reloads", reads, results, "result")
        waiting = "Settings of the file that wait for a restart; config_restart_needed in the log names them."
        yield gauge("config_restart_needed", waiting, len(reloading.restart_needed))
