"""The tables of `rates` against a slow reference in plain Python, and the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner

from pidgate.pipeline.cli import app
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.passes import JOBS, RATES
from tests.pipeline.made_events import DAY, HOUR, MINUTE, MONDAY, MadeUp, Row, event, results, write_events
from tests.pipeline.reference import Reference

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables

EXPIRY_MS = 5 * HOUR
"""Short, so that ids expire while the history lasts, some of them twice."""


def rows_of(tables: Tables, name: str) -> list[tuple[Any, ...]]:
    path = tables.path("results", name, "*.parquet")
    return duckdb.connect().execute(f"from '{path}' order by all").fetchall()


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: tuple((value is None, value) for value in row[:3]))


def compare(rows: dict[str, list[Row]], expiry_ms: int = EXPIRY_MS) -> Reference:
    expected = Reference(rows, remember_ms=DAY, expiry_ms=expiry_ms)
    found = results(rows, RATES, expiry_ms=expiry_ms)
    for name in JOBS[RATES].results:
        told = in_order([tuple(row.values()) for row in found[name]])
        wanted = in_order(getattr(expected, name))
        assert [tuple(map(approximate, row)) for row in wanted] == told, name
    return expected


def approximate(value: Any) -> Any:
    return pytest.approx(value) if isinstance(value, float) else value


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_all_tables_are_those_of_the_reference(seed: int) -> None:
    made = MadeUp(seed, ids=220)
    expected = compare(made.of)
    _the_data_are_worth_it(expected)
    made.of["id_usage"].pop()
    made.of["decision"].pop(0)
    one_less = compare(made.of)
    assert one_less.rates_by_time != expected.rates_by_time
    assert one_less.rates_users != expected.rates_users


def _the_data_are_worth_it(expected: Reference) -> None:
    assert len(expected.rates_users) == 5
    assert expected.held_by_hour
    assert {row[1] for row in expected.rates_by_time} == {"minute", "hour", "day"}
    assert any(row[1] is None for row in expected.rates_clients)
    assert max(row[3] for row in expected.rates_by_time if row[1] == "minute") > 3


def test_a_history_of_one_refusal() -> None:
    refused = {"decision": "refuse", "reason": "blocked"}
    rows = {"decision": [event("decision", user="bob", client_id="b", producer_id=5, **refused)]}
    found = results(rows, RATES)
    (row,) = found["rates_users"]
    assert (row["user"], row["first_ms"], row["last_ms"]) == ("bob", MONDAY, MONDAY)
    counts = (
        "ids",
        "new_ids",
        "refused_ids",
        "refusals",
        "gave_up",
        "ids_held",
        "states_held",
        "peak_new_ids_per_hour",
    )
    assert [row[name] for name in counts] == [0, 0, 1, 1, 0, 0, 0, 0]
    assert row["new_ids_per_hour_p99"] == 0.0
    assert [row[name] for name in ("requests_per_id", "life_ms_p50", "waited_ms_p50")] == [None] * 3
    assert found["held_by_hour"] == []
    assert [tuple(row.values()) for row in found["rates_clients"]] == [("bob", "b", 0, 0, 0, 0, 1)]


def test_refusals_before_an_id_existed_count() -> None:
    refused = {"decision": "refuse", "reason": "blocked", "user": "bob", "client_id": "b", "producer_id": -1}
    compare({"decision": [event("decision", wall_time_ms=MONDAY + n, **refused) for n in range(9)]})


def test_an_unset_clock_makes_two_hours_of_use_at_most() -> None:
    usage = {"user": "bob", "client_id": "b", "producer_id": 5, "requests": 3, "partitions": 1}
    rows = {"id_usage": [event("id_usage", first_ms=5_000, last_ms=MONDAY, wall_time_ms=MONDAY, **usage)]}
    compare(rows)
    found = results(rows, RATES)
    assert [row["ids"] for row in found["rates_by_time"] if row["unit"] == "hour"] == [1, 1]


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_command_reads_the_days_asked_for_and_the_expiry_from_the_events(
    engine: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three days with an id each; the brokers' expiry is two hours, then, by the newest word, one."""
    admitted = {"user": "bob", "decision": "admit", "reason": "observe"}
    days = [
        event("decision", producer_id=n, wall_time_ms=MONDAY + n * DAY + 50 * MINUTE, **admitted)
        for n in range(3)
    ]
    write_events(tables.root, "decision", days)
    spoken = [(0, 2 * HOUR), (DAY, HOUR), (2 * DAY, None)]
    write_events(
        tables.root,
        "topology",
        [
            event(
                "topology", wall_time_ms=MONDAY + at, producer_id_expiration_ms=expiry, brokers=[], topics=[]
            )
            for at, expiry in spoken
        ],
    )
    inner = Days.parsed("2026-09-29", "2026-09-29")
    assert [path.split("/")[2] for path in tables.event_sizes("decision", inner)] == ["day=2026-09-29"]
    monkeypatch.setattr("pidgate.pipeline.session.spark_session", lambda *_, **__: tables.spark)
    day = ["--since", "2026-09-29", "--until", "2026-09-29", "--engine", engine]
    answer = CliRunner().invoke(app, ["rates", "--tables", tables.root, *day])
    assert answer.exit_code == 0, answer.output
    assert "bob" in answer.stderr
    assert tables.path("results") in answer.stderr.replace("\n", "")
    (row,) = tables.query("rates_users", "from found")
    assert (row["ids"], row["new_ids"], row["first_ms"]) == (1, 1, MONDAY + DAY + 50 * MINUTE)
    hours = [(hour - MONDAY - DAY) // HOUR for _, hour, *_ in rows_of(tables, "held_by_hour")]
    assert hours == [0, 1], "in use at 00:50, expired at 01:50, looked for by 02:00"


@pytest.mark.parametrize("days", [("2026-9-1", None), (None, "yesterday"), ("2026-09-02", "2026-09-01")])
def test_days_that_cannot_be(days: tuple[str | None, str | None]) -> None:
    with pytest.raises(BadOption):
        Days.parsed(*days)


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_no_history_is_said(engine: str, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.pipeline.session.spark_session", lambda *_, **__: tables.spark)
    failure = CliRunner().invoke(app, ["rates", "--tables", tables.root, "--engine", engine]).exception
    assert isinstance(failure, HistoryEmpty)
    assert "ingest" in str(failure)
