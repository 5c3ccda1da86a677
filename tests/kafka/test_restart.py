"""kill -9 under load without a topic; tests/faults/test_restart_faults.py kills fifty times, also with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kill_load import KillLoad
from tests.support.rules import rule
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka


@rule("A restored state remembers its ids and balances.", "fleet")
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
