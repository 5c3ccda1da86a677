"""The metrics over OTLP, received as a collector does and compared with /metrics; collectors that hang or are gone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog
from confluent_kafka import Producer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric
from prometheus_client.parser import text_string_to_metric_families

from pidgate.gateway.metrics.otlp import OtlpExport, is_wanted
from pidgate.gateway.metrics.registry import MetricsRegistry
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

Key = tuple[str, frozenset[tuple[str, str]]]


class Collector:
    """A receiver of OTLP over HTTP. While `hangs`, it takes requests and answers none."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.hung = 0
        self.hangs = False
        self.ended = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.hangs:
                    collector.hung += 1
                    collector.ended.wait()
                    return
                assert self.path == "/v1/metrics"
                assert self.headers["x-tenant"] == "kafka"
                collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    threading.Thread(target=collector.server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        collector.ended.set()
        collector.server.shutdown()
        collector.server.server_close()


def variables(endpoint: str) -> dict[str, str]:
    return {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=kafka",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
    }


def key(name: str, labels: Mapping[str, str]) -> Key:
    return name, frozenset((name, str(float(le)) if name == "le" else le) for name, le in labels.items())


def samples_of(metric: Metric) -> Iterator[tuple[Key, str, float]]:
    """Yield the samples that Prometheus' text format has for it: key, type of the metric, value."""
    kind = str(metric.WhichOneof("data"))
    data = getattr(metric, kind)
    if kind != "gauge":
        assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
        assert kind == "histogram" or data.is_monotonic
    for point in data.data_points:
        labels = {one.key: one.value.string_value for one in point.attributes}
        if kind != "histogram":
            yield key(metric.name, labels), kind, getattr(point, str(point.WhichOneof("value")))
            continue
        total = 0
        for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True):
            total += count
            yield key(f"{metric.name}_bucket", {**labels, "le": str(bound)}), kind, total
        yield key(f"{metric.name}_count", labels), kind, point.count
        yield key(f"{metric.name}_sum", labels), kind, point.sum


def scraped(gateway: GatewayProcess) -> dict[Key, float]:
    return {
        key(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(gateway.read("/metrics"))
        for sample in family.samples
    }


def send(gateway: GatewayProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0


@pytest.mark.kafka
def test_a_collector_gets_what_a_scrape_shows_and_one_that_hangs_costs_one_line(cluster: Cluster) -> None:
    topic = create_topic(cluster.bootstrap_servers(), "otlp")
    quotas = {"mode": "enforce", "producer_ids": {"window": "4s"}, "default": {"producer_ids_rate": 2}}
    with (
        collecting() as collector,
        GatewayProcess(
            cluster.bootstrap_servers(), quotas=quotas, environment=variables(collector.url)
        ) as gateway,
    ):
        for _ in range(5):
            send(gateway, topic)

        before = scraped(gateway)
        seen = len(collector.requests)
        until(lambda: len(collector.requests) > seen + 1)  # one at least that was read after the scrape
        after = scraped(gateway)
        [resource] = collector.requests[seen + 1].resource_metrics
        [scope] = resource.scope_metrics
        exported = {at: (kind, value) for metric in scope.metrics for at, kind, value in samples_of(metric)}
        assert before.keys() <= exported.keys() <= after.keys()
        assert exported[key("pidgate_producer_ids_waited_seconds_count", {"user": "ANONYMOUS"})][1] > 0
        for at, (kind, value) in exported.items():
            is_of_ids = at[0].startswith("pidgate_producer_ids_")
            if kind != "gauge" or (is_of_ids and before.get(at) == after[at]):
                assert before.get(at, 0) <= value <= after[at], at
        attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert attributes["service.name"] == "pidgate"
        assert attributes["service.instance.id"]
        assert attributes["deployment.environment"] == "test"

        collector.hangs = True
        until(lambda: collector.hung >= 4)  # of two exports: each has a second try
        send(gateway, topic)
        assert gateway.status("/readyz") == 200
        [line] = gateway.log_events("metrics_not_exported")
        assert line["cause"]
        collector.hangs = False
        until(lambda: len(gateway.log_events("metrics_exported")) == 2)

        collector.hangs = True
        hung = collector.hung
        until(lambda: collector.hung > hung)
        assert gateway.stop(5) == 0  # does not wait for the collector
        assert len(gateway.log_events("metrics_not_exported")) == 1
        assert "opentelemetry" not in gateway.log_text()


def run_to_its_end(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> list[structlog.typing.EventDict]:
    """Run an export that can never work; return what it logs."""
    for name, value in variables(endpoint).items():
        monkeypatch.setenv(name, value)
    switch_s = sys.getswitchinterval()
    try:
        with structlog.testing.capture_logs() as lines:
            asyncio.run(asyncio.wait_for(OtlpExport(MetricsRegistry(), {}).run(), 10))
    finally:
        sys.setswitchinterval(switch_s)
    return list(lines)


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    monkeypatch.delitem(sys.modules, "pidgate.gateway.metrics.otlp_exporter", raising=False)
    [line] = run_to_its_end(monkeypatch, "http://127.0.0.1:1")
    assert "pidgate[otlp]" in line["remedy"]


def test_a_protocol_that_is_not_spoken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    [line] = run_to_its_end(monkeypatch, "http://127.0.0.1:4317")
    assert "grpc" in line["cause"]


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_switch_the_export(environ: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environ) is wanted
