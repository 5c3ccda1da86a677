"""Short ways to fill a Prometheus metric family. Knows the prefix of all names, nothing of what they mean."""

from collections.abc import Mapping
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX: Final = "pidgate_"
Value = int | float | Mapping[str, int]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def counter(name: str, text: str, value: Value, label: str | None = None) -> CounterMetricFamily:
    """A counter family; with a label `value` is a mapping from label value to count."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def gauge(name: str, text: str, value: Value, label: str | None = None) -> GaugeMetricFamily:
    """As counter, for a level."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=[label] if label else None), value)


def _filled(family: Family, value: Value) -> Family:
    if isinstance(value, Mapping):
        for label, number in value.items():
            family.add_metric([label], number)
    else:
        family.add_metric([], value)
    return family
