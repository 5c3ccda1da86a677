"""Export of the metrics by OTLP, if OpenTelemetry's environment variables name a collector.

The event loop reads the metrics in turns with the traffic, as for a scrape. A thread of its own imports OpenTelemetry,
encodes and sends (otlp_exporter.py): a collector that hangs costs the exports until it answers, and one line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from pidgate.gateway.disk_thread import DiskThread
from pidgate.gateway.logs import Event, logger

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from pidgate.gateway.metrics.otlp_exporter import Exporter
    from pidgate.gateway.metrics.registry import MetricsRegistry

log = logger()

SAMPLES_PER_REQUEST: Final = 5_000
"""Some 500 kB: a collector refuses a body above 20 MB, and memory must not grow with the users."""
SWITCH_S: Final = 0.000_5
"""Longest wait of the event loop for the interpreter while the thread encodes. Python's own is ten times that."""
_DEFAULT_INTERVAL_MS: Final = 60_000.0


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether OpenTelemetry's variables name a collector for metrics."""
    is_off = (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get("OTEL_METRICS_EXPORTER") == "none"
    )
    return not is_off and bool(
        environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    )


class OtlpExport:
    """`run` exports what `registry` collects. `resource`: attributes of this process."""

    def __init__(self, registry: MetricsRegistry, resource: Mapping[str, str]) -> None:
        self._registry = registry
        self._resource = resource
        self._thread = DiskThread("pidgate-otlp")
        self._works: bool | None = None

    async def run(self) -> None:
        """Export periodically; return if that can never work."""
        sys.setswitchinterval(SWITCH_S)
        try:
            exporter = await self._thread.do(_exporter, self._resource)
        except ImportError as error:
            self._log_failure(f"OTLP needs an extra ({error})", "pip install 'pidgate[otlp]'")
            return
        except (ValueError, RuntimeError) as error:
            self._log_failure(str(error), "correct OpenTelemetry's variables, and restart")
            return
        while True:
            await asyncio.sleep(_interval_s())
            samples = 0
            async for batch in self._batches():
                if failure := await self._thread.do(exporter.export, batch):
                    self._log_failure(failure, "check the endpoint and its collector; each interval is tried")
                    break
                samples += sum(len(family.samples) for family in batch)
            else:
                if not self._works:
                    log.info(Event.METRICS_EXPORTED, samples=samples)
                self._works = True

    def _log_failure(self, cause: str, remedy: str) -> None:
        if self._works is not False:
            log.warning(Event.METRICS_NOT_EXPORTED, cause=cause, remedy=remedy)
        self._works = False

    async def _batches(self) -> AsyncIterator[list[Metric]]:
        await self._registry.refresh()
        batch: list[Metric] = []
        samples = 0
        for family in self._registry.collect():
            batch.append(family)
            samples += len(family.samples)
            if samples >= SAMPLES_PER_REQUEST:
                yield batch
                batch, samples = [], 0
            await asyncio.sleep(0)
        yield batch


def _exporter(resource: Mapping[str, str]) -> Exporter:
    """Raises ImportError, ValueError."""
    from pidgate.gateway.metrics.otlp_exporter import Exporter

    return Exporter(resource)


def _interval_s() -> float:
    try:
        return max(1.0, float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", _DEFAULT_INTERVAL_MS))) / 1000
    except ValueError:
        return _DEFAULT_INTERVAL_MS / 1000
