"""kill -9 under load, a few times; tests/faults/test_restart_faults.py does it fifty times and in more ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kill_load import LOST_MS, KillLoad
from tests.support.rules import rule
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log

pytestmark = pytest.mark.kafka


@rule("A restored state remembers its ids and balances.", "fleet")
def test_killed_five_times_and_restored_from_the_topic(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("__restart-events")
    events = {"topic": topic, "replication_factor": 1}
    load = KillLoad(sasl_cluster, topic_name("restart"), tmp_path, events=events)
    with load.gateway:
        load.run(5, load_s=0.5)
        print(load.told())
        load.check_kills()
        load.check_log()
        again, oldest_ms = load.charged_again()
        print(f"charged again: {again}, oldest {oldest_ms} ms; forgotten: {load.forgotten()}")
        assert oldest_ms <= LOST_MS
        assert load.forgotten()[1] <= LOST_MS
        restored = [line["restored_from"] for line in load.gateway.log_events("state_restored")]
        assert restored == ["nothing", *["topic"] * 5]
        told = [json.loads(record.value) for record in read_log(sasl_cluster.bootstrap_servers(), topic)]
    caught_up = sorted(
        (event["wall_time_ms"], event["restored_ids"])
        for event in told
        if event["type"] == "lifecycle" and event["phase"] == "caught_up"
    )
    restored_ids = [ids for _, ids in caught_up]
    assert len(restored_ids) == 6
    assert restored_ids[0] == 0
    assert restored_ids == sorted(set(restored_ids)), (
        "each start remembers the one before, and what came since"
    )


def test_killed_and_restored_from_a_state_directory_without_a_topic(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    load = KillLoad(sasl_cluster, topic_name("restart"), tmp_path, events=None, state_dir=tmp_path / "state")
    with load.gateway:
        load.run(2, load_s=0.5)
        print(load.told())
        load.check_kills()
        load.check_log()
        restored = [line["restored_from"] for line in load.gateway.log_events("state_restored")]
        assert restored == ["nothing", *["state_dir"] * 2]
