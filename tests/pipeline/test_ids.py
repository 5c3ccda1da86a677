"""Blocks, coverage and epochs from events written down by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from pidgate.pipeline.cli import app
from pidgate.pipeline.errors import HistoryEmpty
from tests.pipeline.made_events import HOUR, MONDAY, Row, event, write_events

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables


def answered(producer_id: int, node_id: int | None, at: int, epoch: int = 0, **more: Any) -> Row:
    told = {"asked_producer_id": -1, "error": 0, "user": "alice", "transactional": False, **more}
    return event(
        "init_producer_id",
        answered_producer_id=producer_id,
        answered_epoch=epoch,
        node_id=node_id,
        wall_time_ms=MONDAY + at,
        **told,
    )


def used(event_type: str, producer_id: int, at: int, epoch: int = 0) -> Row:
    decided = {"decision": "admit", "reason": "observe"} if event_type == "decision" else {}
    return event(
        event_type, user="alice", producer_id=producer_id, epoch=epoch, wall_time_ms=MONDAY + at, **decided
    )


def rows(tables: Tables, name: str, order: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in tables.query(name, f"from found order by {order}")]


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_blocks_coverage_bursts_and_epochs(
    engine: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    inits = [
        answered(0, 1, 0),
        answered(9, 1, 500, count=40),  # 39 more that were summed into it
        answered(2_000, 1, 30_000),  # broker 1 needed its next block after half a minute
        answered(1_999, 2, 0),
        answered(3_000, 2, 2 * HOUR),
        answered(3_001, None, HOUR),  # before, over a bootstrap address: of the same block, by whom is not known
        answered(7, 2, 5_000, epoch=4, asked_producer_id=7, transactional=True),  # its coordinator moved
        answered(-1, 1, 0, epoch=-1, error=16),
        answered(5, None, 0, epoch=-1, error=14),
    ]  # fmt: skip
    decisions = [
        used("decision", 9, 600),
        used("decision", 3, 700),
        used("decision", 8_004, HOUR),
        used("decision", -1, 0),
    ]
    usages = [
        used("id_usage", 9, 600, epoch=0),
        used("id_usage", 9, 700, epoch=32_766),
        used("id_usage", 7, 1, epoch=3),
    ]
    write_events(tables.root, "init_producer_id", inits)
    write_events(tables.root, "decision", decisions)
    write_events(tables.root, "id_usage", usages)
    monkeypatch.setattr("pidgate.pipeline.session.spark_session", lambda *_, **__: tables.spark)
    answer = CliRunner().invoke(
        app, ["ids", "--tables", tables.root, "--since", "2026-09-28", "--engine", engine]
    )
    assert answer.exit_code == 0, answer.output
    assert "2 ids above epoch 0, 32,767 bumps, 1 with their epochs used up" in answer.stderr
    assert rows(tables, "ids_blocks", "block_start") == [
        (0, 1, MONDAY, MONDAY + 700, 3, 10, 39, 30_000, True),
        (1_000, 2, MONDAY, MONDAY, 1, 1_000, 0, 2 * HOUR - HOUR, False),
        (2_000, 1, MONDAY + 30_000, MONDAY + 30_000, 1, 1, 0, None, False),
        (3_000, 2, MONDAY + HOUR, MONDAY + 2 * HOUR, 2, 2, 0, None, False),
        (8_000, None, MONDAY + HOUR, MONDAY + HOUR, 1, 5, 0, None, False),
    ]
    assert rows(tables, "ids_by_hour", "hour_ms, node_id nulls first") == [
        (MONDAY, 1, 2, 4, 11, 39, 1, 4 / 11),
        (MONDAY, 2, 1, 1, 1_000, 0, 0, 1 / 1_000),
        (MONDAY + HOUR, None, 1, 1, 5, 0, 0, 1 / 5),
        (MONDAY + HOUR, 2, 1, 2, 2, 0, 0, 1.0),
    ]
    assert rows(tables, "ids_epochs", "producer_id") == [
        ("alice", 7, 3, 4, 1, False),
        ("alice", 9, 0, 32_766, 32_766, True),
    ]


def test_no_history_is_said(tables: Tables) -> None:
    failure = CliRunner().invoke(app, ["ids", "--tables", tables.root, "--engine", "local"]).exception
    assert isinstance(failure, HistoryEmpty)
    assert "init_producer_id" in str(failure)
