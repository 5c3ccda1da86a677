"""kill -9 under load, a few times; tests/faults/test_restart_faults.py does it fifty times and in more ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import Cluster
from tests.support.kill_load import LOST_MS, KillLoad

pytestmark = pytest.mark.kafka


def test_killed_five_times_and_restored_from_the_topic(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    events = {"topic": topic_name("__restart-events"), "partitions": 3, "replication_factor": 1}
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
