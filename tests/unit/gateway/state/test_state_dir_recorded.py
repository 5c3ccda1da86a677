"""State directories that earlier versions wrote are read for as long as there is a version that promises it."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog

from pidgate.events.definitions import DecisionEvent
from pidgate.events.reading import from_json
from pidgate.gateway.state.state_dir import Loaded, frames, snapshot
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.state import new_id_question
from tests.support import record_state
from tests.support.record_state import HOUR_MS
from tests.support.state_dirs import opened

DATA = Path(__file__).parents[3] / "data"
RECORDED = sorted(DATA.glob("state-v*"))


def loaded_from(path: Path) -> tuple[Loaded, list[bytes]]:
    async def load() -> tuple[Loaded, list[bytes]]:
        with structlog.testing.capture_logs():
            state_dir, loaded = await opened(path)
            found = loaded, list(loaded.journal)
            await state_dir.close()
            return found

    return asyncio.run(load())


def test_this_version_is_recorded() -> None:
    assert DATA / f"state-v{snapshot.SNAPSHOT_VERSION}" in RECORDED


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name)
def test_a_recorded_directory_is_read_and_means_what_it_meant(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "state"
    shutil.copytree(recorded, path)
    expected = json.loads((path / "expected.json").read_text("utf-8"))
    loaded, journal = loaded_from(path)

    assert (loaded.set_aside, loaded.journal.damaged) == ([], [])
    assert loaded.written_wall_ms == expected["written_wall_ms"]
    assert loaded.grace_until_wall_ms == expected["grace_until_wall_ms"]
    assert loaded.offsets == {int(partition): offset for partition, offset in expected["offsets"].items()}
    decisions = [from_json(value) for value in journal]
    assert [d.producer_id for d in decisions if isinstance(d, DecisionEvent)] == expected["journalled_ids"]

    # The machine booted an hour before the snapshot was taken: times before its clock's 0 occur.
    taken_ms = HOUR_MS
    quota = ProducerIdQuota(record_state.quotas(), lambda: 1, 0)
    for user in loaded.users:
        quota.restorer.import_user(user, taken_ms)
    quota.restorer.import_cluster_bucket(loaded.cluster_bucket, taken_ms)
    cluster = quota.restorer.export_cluster_bucket(taken_ms)
    assert cluster is not None
    assert cluster.units / cluster.token_units == expected["cluster_tokens"]
    assert len(loaded.users) == len(expected["users"])
    for user in expected["users"]:
        ids = range(user["first_id"], user["first_id"] + user["ids"])
        # Version 1 does not tell what an id was used for: it is known for either use.
        known_for = [user["transactional"]] if "transactional" in user else [False, True]
        for use in (False, True):
            known = [quota.table.remembers(_named(user), one, taken_ms, transactional=use) for one in ids]
            assert known == [use in known_for] * len(ids)
            assert not quota.table.remembers(_named(user), ids.stop + 50, taken_ms, transactional=use)
        assert quota.status(_named(user), taken_ms).tokens == user["tokens"]
    _check_transactional_ids(quota, expected, taken_ms)


def _named(user: dict[str, Any]) -> str:
    """The name "" was that of everybody unidentified, and null in files."""
    name: str | None = user["user"]
    return name or ""


def _check_transactional_ids(quota: ProducerIdQuota, expected: dict[str, Any], now_ms: int) -> None:
    def refused(hashed: int) -> bool:
        return quota.decide(new_id_question("alice", "10.0.0.1", "app", hashed), now_ms).refused

    let_in = expected.get("transactional_ids_let_in", 11)  # version 1 knew none: all of the burst is left
    assert [refused(number) for number in range(30)].count(False) == let_in
    assert not any(refused(hashed) for hashed in expected.get("transactional_ids", []))


def shape_of(path: Path) -> set[tuple[int, tuple[str, ...], int]]:
    """Kinds of frames, the keys of their heads, and how many values a layer has."""
    found = list(frames.read(path / "snapshot-00000002", snapshot.SNAPSHOT_VERSION))
    layers = [len(layer) for frame in found for layer in frame.head.get("layers", [])]
    return {(frame.kind, tuple(sorted(frame.head)), min(layers)) for frame in found}


def test_what_is_recorded_now_has_the_shape_of_what_was_recorded(tmp_path: Path) -> None:
    """A change of the format is seen here before it is released: it needs a version and a record of its own."""
    with structlog.testing.capture_logs():
        asyncio.run(record_state.record(tmp_path))

    assert shape_of(tmp_path) == shape_of(DATA / f"state-v{snapshot.SNAPSHOT_VERSION}")
