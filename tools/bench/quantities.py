"""Quantities of one run's measurement: cost, latency, throughput, memory. Pure arithmetic.

Costs are the CPU time of the process between client and broker. KB, MB and GB are powers of 1,000.
"""

from collections.abc import Callable

Measured = dict[str, float]
Quantity = Callable[[Measured], float]


def measured_as(name: str) -> Quantity:
    """Return what a run has measured under this name."""
    return lambda measured: measured[name]


p50_ms = measured_as("p50_ms")
p90_ms = measured_as("p90_ms")
p99_ms = measured_as("p99_ms")


def cpu_us_per_request(measured: Measured) -> float:
    return measured["cpu_s"] * 1e6 / measured["requests"]


def requests_per_cpu_s(measured: Measured) -> float:
    return measured["requests"] / measured["cpu_s"]


def cpu_s_per_gb(measured: Measured) -> float:
    """GB of record values."""
    return measured["cpu_s"] * 1e9 / measured["bytes"]


def cpu_us_per_connection(measured: Measured) -> float:
    return measured["cpu_s"] * 1e6 / measured["connections"]


def wakeups_per_request(measured: Measured) -> float:
    return measured["wakeups"] / measured["requests"]


def mb_per_s(measured: Measured) -> float:
    """Record values per second."""
    return measured["bytes"] / measured["seconds"] / 1e6


def rss_kb_per_connection(measured: Measured) -> float:
    """Grown since the first connections were open, by each further one with its side to the broker."""
    return measured["rss_bytes"] / measured["connections"] / 1e3


def taken_mb_per_connection(measured: Measured) -> float:
    """Return what the load could send of a frame that it leaves unfinished."""
    return measured["taken_bytes"] / measured["connections"] / 1e6


def start_rss_mb(measured: Measured) -> float:
    """With the first connections open."""
    return measured["rss_before_bytes"] / 1e6
