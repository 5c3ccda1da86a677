"""Helpers that fill Prometheus metric families, with the common name prefix."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pidgate.gateway.metrics.counters import Times

PREFIX: Final = "pidgate_"
LABELLED_ROWS: Final = 1_000
"""Users, and byte accounts, with labels of their own at /metrics."""
Value = int | float | Mapping[str, int] | Mapping[str, float]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def counter(name: str, text: str, value: Value, label: str | None = None) -> CounterMetricFamily:
    """Return a counter family; with a label, `value` maps label values to counts."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def gauge(name: str, text: str, value: Value, label: str | None = None) -> GaugeMetricFamily:
    """Return a gauge family, with the arguments of `counter`."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def histogram(
    name: str, text: str, observed: Times | Mapping[str, Times], label: str | None = None
) -> HistogramMetricFamily:
    """Return a histogram family; with a label, `observed` maps label values to times."""
    family = HistogramMetricFamily(PREFIX + name, text, labels=[label] if label else None)
    for value, times in ({"": observed} if isinstance(observed, Times) else observed).items():
        sums = [float(count) for count in accumulate(times.counts)]
        buckets = list(zip([*map(str, times.bounds_s), "+Inf"], sums, strict=True))
        family.add_metric([value] if label else [], buckets, sum_value=times.sum_s)
    return family


def _filled(family: Family, value: Value) -> Family:
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], number)
    else:
        family.add_metric([], value)
    return family
