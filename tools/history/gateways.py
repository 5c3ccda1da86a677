"""Events of gateways about themselves: lifecycle, quotas in force, cluster topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.history.observed import Columns
from tools.history.refusals import SETTINGS, quotas
from tools.history.sessions import Incarnation
from tools.history.shard import Day, brokers_of
from tools.history.world import DAY_MS, World

ALIVE_EVERY_MS = 30_000


def _rows(events: Sequence[tuple[int, int, dict[str, Any]]]) -> Columns:
    """Return event rows from (incarnation, true time, own fields)."""
    incarnations, at_ms, own = zip(*events, strict=True)
    return {"incarnation": np.array(incarnations), "at_ms": np.array(at_ms), "own": np.array(own, object)}


def lifecycle(world: World, processes: Sequence[Incarnation], shard: int) -> Columns:
    events: list[tuple[int, int, dict[str, Any]]] = []
    for number, process in enumerate(processes):
        restored = {"restored_from": "nothing" if process.begin_ms == world.begin_ms else "topic"}
        events.append((number, process.begin_ms + 10, _phase("start", restored_from="nothing")))
        events.append((number, process.begin_ms + 60, _phase("caught_up", **restored)))
        if shard == 0:
            events += [
                (number, at_ms, _phase("alive"))
                for at_ms in range(process.begin_ms + ALIVE_EVERY_MS, process.end_ms - 1_000, ALIVE_EVERY_MS)
            ]
        events.append((number, process.end_ms - 1, _phase("stop")))
    return _rows(events)


def _phase(phase: str, **more: Any) -> dict[str, Any]:
    return {
        "phase": phase,
        "mode": "observe",
        "window_ms": SETTINGS.window_ms,
        "remember_ms": SETTINGS.remember_ms,
        "grace_until_wall_ms": None,
        "restored_ids": 0,
        "restored_users": 0,
        "restored_from": "nothing",
        "text": "",
        **more,
    }


def config(day: Day, processes: Sequence[Incarnation]) -> Columns:
    """Return a config event per start."""
    in_force = quotas(day.users)
    users = [
        {
            "user": name,
            "rate_milli": user.producer_ids_rate_milli,
            "transactional_ids_rate_milli": None,
            "producer_states_rate_milli": None,
            "mode": "enforce",
            "exempt": False,
            "source": "file",
            "set_by": "",
            "set_wall_ms": None,
            "owner": f"team-{name.split('-')[0]}",
            "note": "",
        }
        for name, user in sorted(in_force.users.items())
    ]
    fields = {
        "quota_version": 1,
        "mode": "observe",
        "transactional": "observe",
        "window_ms": SETTINGS.window_ms,
        "burst": 1.0,
        "remember_ms": SETTINGS.remember_ms,
        "layers": SETTINGS.layers,
        "false_positive_rate": SETTINGS.false_positive_rate,
        "max_throttle_ms": SETTINGS.max_throttle_ms,
        "max_live_ids": SETTINGS.max_live_ids,
        "queue": SETTINGS.queue,
        "sticky_entries": SETTINGS.sticky_entries,
        "refuse_init_producer_id": SETTINGS.refuse_init,
        "default_rate_milli": None,
        "default_transactional_ids_rate_milli": None,
        "default_producer_states_rate_milli": None,
        "default_source": "file",
        "cluster_rate_milli": None,
        "quotas": users,
    }
    return _rows([(number, process.begin_ms + 11, fields) for number, process in enumerate(processes)])


def topology(day: Day, processes: Sequence[Incarnation]) -> Columns:
    """Return topology events: brokers in three racks, each topic's partitions distributed round robin."""
    nodes = list(brokers_of(day.world))
    brokers = [
        {"node_id": node, "host": f"kafka-{node}.example", "port": 9092, "rack": "abc"[node % 3]}
        for node in nodes
    ]
    topics = []
    for user in day.users:
        for place, topic in enumerate(user.topics):
            size = 4 + (user.number + place) % 9
            leaders = [nodes[(user.number + partition) % len(nodes)] for partition in range(size)]
            replicas = [
                [nodes[(nodes.index(one) + step) % len(nodes)] for step in range(3)] for one in leaders
            ]
            topics.append({"topic": f"{user.number}.{topic}", "leaders": leaders, "replicas": replicas})
    fields = {"brokers": brokers, "topics": topics, "producer_id_expiration_ms": DAY_MS}
    return _rows([(number, process.begin_ms + 200, fields) for number, process in enumerate(processes)])
