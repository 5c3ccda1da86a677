"""Families of Prometheus as OTLP metrics, sent by OpenTelemetry's exporter. Needs the extra `otlp`.

A metric keeps its name at /metrics, a counter with its `_total`. Labels become attributes. Counters are monotonic
sums and histograms have explicit bounds, both cumulative since the start of the process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from pidgate.gateway.clock import wall_ms

PROTOCOL: Final = "http/protobuf"
_LONGEST_REASON: Final = 300
_UNKNOWN: Final = cast(float, None)
"""Least and greatest value of a histogram. The encoder leaves None out."""
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class Exporter:
    """Exports families, one request a call. Raises ValueError if OpenTelemetry's variables cannot be used."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        given = (os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}PROTOCOL") for kind in ("METRICS_", ""))
        protocol = next(filter(None, given), PROTOCOL)
        if protocol != PROTOCOL:
            raise ValueError(f"OTLP over {protocol} is not spoken, only over {PROTOCOL}")
        self._resource = Resource(dict(resource)).merge(OTELResourceDetector().detect())
        self._last_error = _LastError()
        self._exporter = OTLPMetricExporter()
        self._start_ns = wall_ms() * 1_000_000

    def export(self, families: Sequence[Family]) -> str:
        """Return why the collector did not accept them; empty if it did."""
        now_ns = wall_ms() * 1_000_000
        metrics = [_metric(family, self._start_ns, now_ns) for family in families if family.samples]
        scope = ScopeMetrics(InstrumentationScope("pidgate"), metrics, "")
        result = self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        return "" if result is MetricExportResult.SUCCESS else self._last_error.text


class _LastError(logging.Handler):
    """Keeps the last line of OpenTelemetry's loggers, which alone have the reason of a failure."""

    text = "no reason given"

    def __init__(self) -> None:
        super().__init__()
        logs = logging.getLogger("opentelemetry")
        logs.addHandler(self)
        logs.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()[:_LONGEST_REASON]


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric:
    if family.type == "histogram":
        histogram = Histogram([*_histograms(family, start_ns, now_ns)], _CUMULATIVE)
        return Metric(family.name, family.documentation, "", histogram)
    points = [NumberDataPoint(sample.labels, start_ns, now_ns, sample.value) for sample in family.samples]
    if family.type == "counter":
        return Metric(f"{family.name}_total", family.documentation, "", Sum(points, _CUMULATIVE, True))
    return Metric(family.name, family.documentation, "", Gauge(points))


def _histograms(family: Family, start_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each row of labels. Its samples are the running sums of the buckets, the count and the sum."""
    bounds: list[float] = []
    counts: list[int] = []
    below = 0
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            bounds.append(float(sample.labels["le"]))
            counts.append(int(sample.value) - below)
            below = int(sample.value)
        elif sample.name.endswith("_sum"):
            yield HistogramDataPoint(
                attributes=sample.labels,
                start_time_unix_nano=start_ns,
                time_unix_nano=now_ns,
                count=below,
                sum=sample.value,
                bucket_counts=counts,
                explicit_bounds=bounds[:-1],
                min=_UNKNOWN,
                max=_UNKNOWN,
            )
            bounds, counts, below = [], [], 0
