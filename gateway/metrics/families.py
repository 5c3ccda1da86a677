"""Short ways to fill a Prometheus metric family. Knows the prefix of all names, nothing of what they mean."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

PREFIX: Final = "pidgate_"
Value = int | float | Mapping[str, int]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def counter(name: str, text: str, value: Value, label: str | None = None) -> CounterMetricFamily:
    """A counter family; with a label `value` is a mapping from label value to count."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def gauge(name: str, text: str, value: Value, label: str | None = None) -> GaugeMetricFamily:
    """As counter, for a level."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def histogram(
    name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> HistogramMetricFamily:
    """`counts` per bucket, one more than bounds for what is beyond; `total` is the sum of what was observed."""
    sums = [float(count) for count in accumulate(counts)]
    buckets = list(zip([*map(str, bounds), "+Inf"], sums, strict=True))
    family = HistogramMetricFamily(PREFIX + name, text)
    family.add_metric([], buckets, sum_value=total)
    return family


def _filled(family: Family, value: Value) -> Family:
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], number)
    else:
        family.add_metric([], value)
    return family
