"""Idle: 8,000 connections that have said ApiVersions, each with its own to the broker; RSS of the proxy.

As 03, four times as many. A proxy holds two sockets for each, so this needs over 16,000 open files: the limit is
raised where that is allowed, else the scenario is left out, and that is said.
"""

from bench.goals import Goal
from bench.quantities import rss_kb_per_connection, start_rss_mb
from bench.scenario import Scenario

SCENARIO = Scenario(
    number="08",
    name="idle-connections",
    title="8,000 idle connections, each with its connection to the broker",
    kind="idle",
    plan={"connections": 8000},
    quick={},
    cost_per="connection",
    partitions=1,
    goals=(
        Goal(of="RSS per connection", quantity=rss_kb_per_connection, bound="at most", limit=8, unit="KB"),
        Goal(of="RSS at start", quantity=start_rss_mb, bound="at most", limit=90, unit="MB"),
    ),
)
