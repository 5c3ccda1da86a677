"""Kafka's own performance tools and their output, independent of the Kafka version."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tools.sandbox.errors import ToolFailed
from tools.sandbox.tools import JavaTools

_TOOLS: Final = "org.apache.kafka.tools"
_SUMMARY: Final = re.compile(
    r"^(\d+)(?: steady state)? records sent, ([\d.]+) records/sec.* (\d+) ms 50th, .* (\d+) ms 99th",
    re.MULTILINE,
)


class Produced(NamedTuple):
    """Records acknowledged to ProducerPerformance; latencies in whole milliseconds."""

    records: int
    seconds: float
    p50_ms: float
    p99_ms: float


class Consumed(NamedTuple):
    """Records read by ConsumerPerformance, and its fetch time."""

    records: int
    mebibytes: float
    seconds: float


def has_command_config(version: str) -> bool:
    """Return whether --command-config replaces --producer.config and --consumer.config (4.2 and later)."""
    return tuple(map(int, version.split(".")[:2])) >= (4, 2)


def produce_performance(
    tools: JavaTools,
    bootstrap_servers: str,
    topic: str,
    records: int,
    *,
    size_bytes: int = 100,
    records_per_s: float = -1,
    properties: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Produced:
    """Send this many records with ProducerPerformance, by default at full speed.

    Raises ToolFailed, also if some were not acknowledged.
    """
    wanted = {"bootstrap.servers": bootstrap_servers, **(properties or {})}
    option = "--command-property" if has_command_config(tools.version) else "--producer-props"
    result = tools.run(
        f"{_TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size_bytes)),
        *("--throughput", f"{records_per_s:g}"),
        *(option, *(f"{key}={value}" for key, value in wanted.items())),
        timeout_s=timeout_s,
    )
    summaries = _SUMMARY.findall(result.stdout)
    if not summaries or int(summaries[-1][0]) != records:
        raise ToolFailed(f"ProducerPerformance: not {records} records\n{result.stdout}\n{result.stderr}")
    _, per_s, p50_ms, p99_ms = summaries[-1]
    return Produced(records, records / float(per_s), float(p50_ms), float(p99_ms))


def consume_performance(
    tools: JavaTools, bootstrap_servers: str, topic: str, records: int, *, timeout_s: float = 120.0
) -> Consumed:
    """Read this many records with ConsumerPerformance in a new group, from the beginning.

    Raises ToolFailed, also if there were fewer.
    """
    result = tools.run(
        f"{_TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--hide-header"),
        *("--num-records" if has_command_config(tools.version) else "--messages", str(records)),
        timeout_s=timeout_s,
    )
    fields = (result.stdout.strip().splitlines() or [""])[-1].split(", ")
    if len(fields) < 8 or int(fields[4]) < records:
        raise ToolFailed(f"ConsumerPerformance: not {records} records\n{result.stdout}\n{result.stderr}")
    return Consumed(int(fields[4]), float(fields[2]), int(fields[7]) / 1e3)
