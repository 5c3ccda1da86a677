"""Two commits' jobs are compared by their results, and told as ratios."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.bench.pipeline_against import Cost, _ratios, _same


def table(folder: Path, name: str, new_ids: list[int], ids_hll: int) -> Path:
    place = folder / name / "rates_users"
    place.mkdir(parents=True)
    rows = pa.table({"new_ids": new_ids, "ids_hll": [ids_hll] * len(new_ids)})
    pq.write_table(rows, place / "part-0.parquet")
    return place


def test_estimates_may_differ_and_counts_may_not(tmp_path: Path) -> None:
    one, other = table(tmp_path, "one", [1, 2], 7), table(tmp_path, "other", [2, 1], 8)
    _same(one, other)
    for name, new_ids in (("less", [1]), ("more", [1, 2, 3])):
        with pytest.raises(SystemExit, match="rates_users differs in 1 rows"):
            _same(one, table(tmp_path, name, new_ids, 7))


def test_a_row_that_is_there_twice_differs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="differs in 1 rows"):
        _same(table(tmp_path, "one", [1, 2], 7), table(tmp_path, "other", [1, 2, 2], 7))


def test_ratios_are_taken_within_each_run() -> None:
    pairs = [
        {"this": Cost(1.0, 10.0), "other": Cost(2.0, 5.0)},
        {"this": Cost(3.0, 1.0), "other": Cost(12.0, 1.0)},
    ]
    assert _ratios(pairs)["cpu_s"] == {"median": 0.375, "least": 0.25, "greatest": 0.5}
    assert _ratios(pairs)["seconds"]["median"] == 1.5
