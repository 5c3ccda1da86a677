"""Both engines find the same, to the last bit, whatever the number of buckets and the order of the events."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pidgate.pipeline.days import EVER
from pidgate.pipeline.engines import results_of
from pidgate.pipeline.passes import JOBS, OFFENDERS, RATES, Pass
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.recommend.recommended import HARMFUL, Question
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.tables import Tables
from tests.pipeline.made_events import DAY, HOUR, MadeUp, Row, results_of_pass, rows_of_events, write_events
from tests.support.offender_events import Scenes
from tests.support.who_events import START_MS, Client

QUESTION = Question(
    asked=Asked(),
    config=None,
    shares={"orders": {1: 0.25, 2: 0.75}, "": {1: 0.25, 2: 0.75}},
    expiry_ms=5 * HOUR,
    healthy_by="offenders",
    harmful=pa.Table.from_pylist(
        [{"user": "loop", "client_id": "billing-7", "address": "10.0.3.4", "is_harmful": True}], HARMFUL
    ),
    findings={"loop": {"patterns": ["restart_loop"], "rogues": ["client billing-7"]}},
)
TODO = Pass(tuple(JOBS), remember_ms=DAY, expiry_ms=5 * HOUR, question=QUESTION)
COMPARED = TODO.results.keys() - {"recommend_extent"}
"""That one is of the whole history, again in each part."""
Found = Mapping[str, list[tuple[Any, ...]]]


def events() -> dict[str, list[Row]]:
    made = Scenes()
    made.restart_loop(Client(user="loop", client_id="billing-7", address="10.0.3.4"))
    made.per_error(Client(user="error", client_id="import", address="10.0.3.6"))
    made.per_batch_in_pods("pods")
    made.autoscaling("autoscaling")
    made.rolling("rolling")
    made.now_and_again(Client(user="cut", client_id="agent", address="10.0.3.9"), "reset")
    made.random_transactional_ids(Client(user="transactional", client_id="tx", address="10.0.3.8"))
    rows = rows_of_events(made.stream.events())
    for event_type, more in MadeUp(seed=3, ids=150).of.items():
        rows.setdefault(event_type, []).extend(more)
    for row in rows["id_usage"]:
        row["epoch"] = row["producer_id"] % 4
    # Refusals of InitProducerId: no id says which bucket is theirs.
    rows["decision"] += [
        {
            **rows["decision"][0],
            "seq": 10**6 + n,
            "producer_id": -1,
            "decision": "refuse",
            "wall_time_ms": START_MS + n,
        }
        for n in range(50)
    ]
    return rows


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return events()


@pytest.fixture(scope="module")
def root(rows: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The events in another order than in `rows`."""
    root, chance = str(tmp_path_factory.mktemp("engines")), random.Random(5)
    for event_type, made in rows.items():
        write_events(root, event_type, chance.sample(made, len(made)))
    return root


@pytest.fixture(scope="module")
def expected(rows: dict[str, list[Row]]) -> Found:
    """One bucket, one part, no engine."""
    found = results_of_pass(rows, TODO)
    return {name: in_order(list(map(hashable, table))) for name, table in found.items() if name in COMPARED}


def hashable(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        tuple(sorted(value.items()))
        if isinstance(value, dict)
        else tuple(value)
        if isinstance(value, list)
        else value
        for value in row.values()
    )


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def found_by(tables: Tables, buckets: int | None) -> Found:
    with replacing(tables) as run:
        found = results_of(TODO, run, EVER, buckets)
        for name in COMPARED:
            found.write(run, name)
    return {name: in_order(list(map(hashable, tables.query(name)))) for name in COMPARED}


def test_the_events_are_worth_it(expected: Found) -> None:
    assert set(expected) == COMPARED
    assert all(expected.values())
    assert all(len(expected[name]) > 10 for job in (RATES, OFFENDERS) for name in JOBS[job].results)
    assert len({row[1] for row in expected["offenders"]}) >= 6


@pytest.mark.parametrize("buckets", [None, 1, 7, 64])
def test_one_process_finds_the_same_in_any_number_of_buckets(
    buckets: int | None, root: str, expected: Found
) -> None:
    assert found_by(Tables(None, root), buckets) == expected


@pytest.mark.parametrize("buckets", [None, 1, 7, 64])
def test_spark_finds_the_same_in_any_number_of_buckets(
    buckets: int | None, tables: Tables, root: str, expected: Found
) -> None:
    assert found_by(Tables(tables.spark, root), buckets) == expected


def test_one_event_less_is_noticed(rows: dict[str, list[Row]], expected: Found) -> None:
    less = {**rows, "id_usage": rows["id_usage"][1:]}
    found = results_of_pass(less, TODO)
    assert in_order(list(map(hashable, found["rates_users"]))) != expected["rates_users"]
