"""Memory: 2,000 connections that have said ApiVersions and are idle; RSS of the proxy before and after.

A proxy holds two sockets for each, so the limit of open files matters: 2,000 needs somewhat over 4,000.
"""

from bench.scenario import Scenario

SCENARIO = Scenario(
    number="03",
    name="memory-per-connection",
    title="2,000 idle connections, each with its connection to the broker",
    kind="idle",
    plan={"connections": 2000},
    quick={"connections": 300},
    cost_per="connection",
    partitions=1,
)
