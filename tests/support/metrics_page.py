"""Write docs/reference/metrics.md from a gateway's /metrics: `python -m tests.support.metrics_page` (`make docs`)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.process.server import Gateway
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"

_HEAD: Final = """\
# Metrics

For operators: all metrics of `/metrics` at the admin address, in Prometheus' text format, generated from the \
gateway. [Runbooks](../how-to/runbooks.md) has the alerts.

A metric with the label `user` has a row for each of the first 1,000 users, and one row `(other)` for the sum of all \
others. Another name in brackets stands for connections whose user cannot be read.

`/metrics/overview` shows the same metrics with few series, however many users there are: the users of a metric are \
one row `(other)`, and only the two `pidgate_top_` metrics name users. Scrape one of the two pages. Both need the \
same token.

Histograms do not count requests in [lanes](../explanation/lanes.md) (`pidgate_lane_requests_total`), because a lane \
reads no clock. So `pidgate_forward_seconds` covers the requests that Python handles: those that need a decision, \
the first ones of a connection, and all of them with `lanes: 0`.

**OTLP.** With `pip install 'pidgate[otlp]'`, and `OTEL_EXPORTER_OTLP_ENDPOINT` or its `METRICS` form in the \
environment, the gateway also sends the metrics of `/metrics` to a collector (http/protobuf), each \
`OTEL_METRIC_EXPORT_INTERVAL`; OpenTelemetry's other variables hold too. Names and labels are the same. A counter is \
a monotonic sum that keeps its `_total`, and a histogram has explicit bounds; both are cumulative. A collector that \
is down costs these values and one line, [`metrics_not_exported`](logs.md).

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""
_TAIL: Final = """
## Kafka's names

| in a KIP, or at a broker (JMX) | here |
| --- | --- |
| KIP-936, group ProducerIds, tag user: `rate` | `pidgate_producer_ids_rate{user}` |
| KIP-936: `tokens` | `pidgate_producer_ids_tokens{user}` |
| KIP-936: `throttle-time` (ms) | `pidgate_producer_ids_throttle_time_seconds{user}` |
| KIP-13, groups Produce and Fetch: `byte-rate` | `pidgate_byte_rate` |
| KIP-13: `throttle-time` (ms) | `pidgate_byte_throttle_time_seconds` |
| KIP-13, KIP-936: the quota in force | `pidgate_byte_quota`, `pidgate_producer_ids_quota{user}` |
| KIP-219: connections that are muted | `pidgate_connections_muted` |
| KIP-546: entries of `kafka-configs --describe` | `pidgate_quota_changes` counts those set at run time |
| KIP-730: blocks of producer ids | `pidgate_producer_id_blocks`, also those of producers that bypass the gateway |
| `kafka.producer:type=producer-metrics`: `produce-throttle-time-avg` (ms), in the client | \
`pidgate_producer_ids_throttle_time_seconds{user}`, `pidgate_byte_throttle_time_seconds` |
| `kafka.producer:type=producer-metrics`: `request-latency-avg` (ms), in the client | \
`pidgate_forward_seconds` + `pidgate_wait_seconds{kind="held"}` + `pidgate_broker_seconds` |
| `kafka.server:type=ReplicaManager,name=ProducerIdCount` | `pidgate_producer_ids_live{user}` counts ids once; a \
broker counts one for each id and partition |
| `kafka.server:type=socket-server-metrics`: `connection-count` | `pidgate_connections` |
| `kafka.server:type=socket-server-metrics`: `connection-creation-rate` | rate of `pidgate_connections_total` |
| `kafka.network:type=RequestMetrics,name=RequestsPerSec,request=X` | `pidgate_requests_total{api="X"}` |
| `kafka.network:type=RequestMetrics,name=LocalTimeMs` | `pidgate_decision_seconds`, `pidgate_forward_seconds` |
| `kafka.network:type=RequestMetrics,name=RemoteTimeMs` | `pidgate_broker_seconds` |
| `kafka.network:type=RequestMetrics,name=ThrottleTimeMs` | `pidgate_wait_seconds{kind="throttle"}` |
| `kafka.network:type=RequestMetrics,name=RequestQueueTimeMs` | `pidgate_wait_seconds{kind="held"}`, \
`pidgate_event_loop_lateness_seconds` |
| `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` | `pidgate_bytes_total{direction="from_clients"}` |
| `kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec` | `pidgate_bytes_total{direction="to_clients"}` |
| `kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent` | 1 - rate of \
`pidgate_event_loop_lateness_seconds_sum`, roughly |
"""


async def _metrics() -> Sequence[Metric]:
    """Return the metrics of a gateway that has everything and is not started."""
    with tempfile.TemporaryDirectory() as folder:
        rates = {"producer_byte_rate": "1MB", "consumer_byte_rate": "1MB", "producer_ids_rate": 1}
        settings = Settings.model_validate(
            {
                "cluster": {"bootstrap_servers": ["localhost:9092"]},
                "events": {"enabled": True},
                "state_dir": folder,
                "quotas": {"default": rates},
            }
        )
        return list(Gateway(settings, Path(folder, "pidgate.yaml")).registry.collect())


def page() -> str:
    rows = []
    for metric in sorted(asyncio.run(_metrics()), key=lambda metric: metric.name):
        name = metric.name + "_total" * (metric.type == "counter")
        # What the library makes itself has no names of labels, and no labels either.
        labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
        rows.append(f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |\n")
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
