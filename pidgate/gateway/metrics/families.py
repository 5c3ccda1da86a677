"""Helpers that fill Prometheus metric families, with the common name prefix."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

PREFIX: Final = "pidgate_"
Value = int | float | Mapping[str, int] | Mapping[str, float]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def counter(name: str, text: str, value: Value, label: str | None = None) -> CounterMetricFamily:
    """Return a counter family; with a label, `value` maps label values to counts."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def gauge(name: str, text: str, value: Value, label: str | None = None) -> GaugeMetricFamily:
    """Return a gauge family, with the arguments of `counter`."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def histogram(
    name: str,
    text: str,
    bounds: Sequence[float],
    observed: Mapping[str, tuple[Sequence[int], float]],
    label: str,
) -> HistogramMetricFamily:
    """Return a histogram. Per label value: the counts per bucket, one more than bounds, and the observed sum."""
    family = HistogramMetricFamily(PREFIX + name, text, labels=[label])
    for value, (counts, total) in observed.items():
        sums = [float(count) for count in accumulate(counts)]
        buckets = list(zip([*map(str, bounds), "+Inf"], sums, strict=True))
        family.add_metric([value], buckets, sum_value=total)
    return family


def _filled(family: Family, value: Value) -> Family:
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], number)
    else:
        family.add_metric([], value)
    return family
