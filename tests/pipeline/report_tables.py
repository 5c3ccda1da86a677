"""Result tables made by hand, as the jobs write them: forty days, a rogue, a hostile name, and quiet users."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from pidgate.pipeline.tables import Tables

HOUR_MS = 3_600_000
START_MS = 1_793_491_200_000  # 2026-11-01 00:00 UTC
DAYS = 30
ROGUE = "mallory"
HOSTILE = "<script>window.stolen=1</script><img src=x onerror=window.stolen=2>"
QUIET = tuple(f"team-{n:02}" for n in range(1, 18))
USERS = (ROGUE, HOSTILE, "carol", *QUIET)


def write_all(tables: Tables) -> None:
    """Every table that the report knows."""
    for name, (schema, rows) in _tables().items():
        write(tables, name, schema, rows)
    _write(Path(tables.path("gaps")), "gateway_id string, missing long", [("gw-1", 17), ("gw-1", 3)])
    _write(Path(tables.path("dead_letters")), "reason string", [("not_json",), ("late",), ("late",)])


def write(tables: Tables, name: str, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """A result, as Spark reads it; written without Spark, which takes a second for each of them."""
    _write(Path(tables.path("results", name)), schema, rows)


def _write(folder: Path, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
    types = _parse_datatype_string(schema)
    assert isinstance(types, StructType)
    columns = zip(*rows, strict=True)
    arrow = to_arrow_schema(types)
    arrays = [pyarrow.array(_plain(column), field.type) for column, field in zip(columns, arrow, strict=True)]
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=arrow), folder / "part-0.parquet")


def _plain(column: Iterable[Any]) -> list[Any]:
    """Arrow takes a map as a list of pairs."""
    return [list(value.items()) if isinstance(value, dict) else value for value in column]


def _tables() -> dict[str, tuple[str, list[tuple[Any, ...]]]]:
    return {
        "rates_users": (_RATES, [_rates(user) for user in USERS]),
        "rates_clients": (
            "user string, client_id string, ids long, new_ids long, peak_new_ids_per_hour long, requests long, "
            "refusals long",
            [(user, f"{user[:9]}-app", 40, 30, 12, 4_000, 0) for user in USERS],
        ),
        "rates_by_time": (
            "user string, unit string, start_ms long, ids long, new_ids long, refusals long",
            [row for user in USERS for row in _by_time(user)],
        ),
        "held_by_hour": (
            "user string, hour_ms long, ids_held long, states_held long",
            [
                (user, hour, 24 * _new(user, n) + 7, 60 * _new(user, n))
                for user in USERS[:6]
                for n, hour in _hours()
            ],
        ),
        "offenders": (OFFENDERS, list(_offenders())),
        "detector_accuracy": (
            "pattern string, users long, found long, true_positives long, precision double, precision_low double, "
            "precision_high double, recall double, recall_low double, recall_high double",
            [
                ("producer_per_batch", 60, 61, 60, 0.984, 0.913, 0.997, 1.0, 0.94, 1.0),
                ("restart_loop", 55, 54, 53, 0.981, 0.902, 0.997, 0.964, 0.877, 0.99),
                ("cron_job", 70, 66, 64, 0.97, 0.896, 0.992, 0.914, 0.825, 0.96),
                ("steady", 200, 203, 199, 0.98, 0.95, 0.992, 0.995, 0.972, 0.999),
            ],
        ),
        "detector_confusion": (
            "actual string, predicted string, users long",
            [
                ("producer_per_batch", "producer_per_batch", 60),
                ("restart_loop", "restart_loop", 53),
                ("restart_loop", "producer_per_batch", 1),
                ("restart_loop", "unknown", 1),
                ("cron_job", "cron_job", 64),
                ("cron_job", "steady", 4),
                ("cron_job", "unknown", 2),
                ("steady", "steady", 199),
                ("steady", "restart_loop", 1),
            ],
        ),
        "recommendations": (_RECOMMENDATIONS, list(_recommendations())),
        "recommend_candidates": (
            "user string, candidate_rate double, period string, admitted long, refused long, healthy_refused long, "
            "rogue_admitted long, rogue_refused long, longest_wait_ms long",
            [
                (
                    ROGUE,
                    rate,
                    period,
                    0,
                    0,
                    max(0, int(40 - rate)),
                    int(rate * 168),
                    60_000 - int(rate * 168),
                    9_000,
                )
                for rate in (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
                for period in ("train", "test")
            ],
        ),
        "filter_accuracy": (
            "user string, ids long, false_positives long, false_positive_rate double, expected_rate double",
            [(ROGUE, 240_000, 201, 201 / 240_000, 0.001), (HOSTILE, 300, 0, 0.0, 0.001)],
        ),
        "ids_blocks": (
            "block_start long, node_id long, first_ms long, last_ms long, ids_seen long",
            [(n * 1_000, 1 + n % 3, START_MS, START_MS + HOUR_MS, 930) for n in range(400)],
        ),
        "ids_by_hour": (
            "hour_ms long, node_id long, blocks long, ids_seen long, ids_in_blocks long, coverage double",
            [(hour, 1 + n % 3, n % 4, 700, 1_000 * (n % 4), 0.93) for n, hour in _hours()],
        ),
        "ids_epochs": (
            "user string, producer_id long, first_epoch long, last_epoch long, bumps long, exhausted boolean",
            [(HOSTILE, 4_711, 0, 32_767, 32_767, True), ("carol", 4_712, 0, 3, 3, False)],
        ),
        "failover_kip": (
            "rule string, step long, broker long, load double, dead boolean",
            [
                ("evenly_from_the_start", step, broker, load + (step and 20.0), broker == 1)
                for step in (0, 1)
                for broker, load in enumerate((100.0, 150.0, 100.0, 120.0, 100.0, 90.0), 1)
            ],
        ),
        "failover_summary": (
            "quota string, scenario string, deaths long, brokers_dead array<long>, first_death_ms long, "
            "peak_heap_bytes long, peak_broker long, peak_hour_ms long, heap_limit_bytes long, holds boolean",
            [
                ("recommended", "as it was", 0, [], None, 8_628_000, 1, START_MS, 700_000_000, True),
                (
                    "none",
                    "as it was",
                    2,
                    [1, 2],
                    START_MS + 501 * HOUR_MS,
                    431_400_000,
                    1,
                    START_MS,
                    400_000_000,
                    False,
                ),
            ],
        ),
        "failover_kafka": (
            "quota string, scenario string, broker long, hour_ms long, ids long, states long, heap_bytes long, "
            "dead boolean",
            [
                (
                    quota,
                    "as it was",
                    broker,
                    hour,
                    n * most,
                    n * most * 12,
                    n * most * 12 * 250,
                    most > 100 and n > 500,
                )
                for quota, most in (("none", 200), ("recommended", 4))
                for broker in (1, 2, 3)
                for n, hour in _hours()
            ],
        ),
    }


def _hours() -> Iterator[tuple[int, int]]:
    return ((n, START_MS + n * HOUR_MS) for n in range(24 * DAYS))


def _new(user: str, hour: int) -> int:
    """New ids of an hour."""
    if user == ROGUE:
        return 0 if hour < 200 else int(300 + 120 * math.sin(hour / 24 * 2 * math.pi) + (hour * 7919) % 60)
    if user == HOSTILE:
        return 40 if hour % 24 in (9, 15) else 1
    if user == "carol":
        return 60 + hour % 5 if 300 < hour < 420 else 2
    return 12 if hour % 168 == USERS.index(user) * 5 else 0


def _by_time(user: str) -> Iterator[tuple[Any, ...]]:
    for n, hour in _hours():
        if new := _new(user, n):
            yield (user, "hour", hour, new + 3, new, new // 3 if user == ROGUE and n > 600 else 0)
    yield (user, "day", START_MS, 999_999, 999_999, 999_999)


_RATES = (
    "user string, first_ms long, last_ms long, ids long, ids_hll long, ids_hll_error double, new_ids long, "
    "peak_new_ids_per_minute long, peak_new_ids_per_hour long, peak_new_ids_per_day long, "
    "new_ids_per_hour_p50 double, new_ids_per_hour_p95 double, new_ids_per_hour_p99 double, life_ms_p50 double, "
    "life_ms_p95 double, requests long, requests_per_id double, partitions_per_id double, refusals long, "
    "refused_ids long, waited_ms_p50 double, waited_ms_p95 double, gave_up long, ids_held long, states_held long"
)


def _rates(user: str) -> tuple[Any, ...]:
    new = [_new(user, n) for n, _ in _hours()]
    total, peak = sum(new), max(new)
    refusals = sum(n // 3 for n in new[601:]) if user == ROGUE else 0
    life = 1_900.0 if user == ROGUE else 7_200_000.0
    return (
        *(user, START_MS, START_MS + DAYS * 24 * HOUR_MS - 1, total + 11, total, 0.008, total),
        *(
            peak // 20 + 1,
            peak,
            sum(sorted(new)[-24:]),
            float(sorted(new)[360]),
            float(sorted(new)[684]),
            float(peak),
        ),
        *(life, 4 * life, 9 * total, 9.0, 12.0, refusals, refusals // 2),
        *((6_200.0, 28_000.0) if refusals else (None, None)),
        *(refusals // 5, 24 * peak, 24 * peak * 12),
    )


OFFENDERS = (
    "user string, pattern string, harmful boolean, new_ids long, share double, client_id string, address string, "
    "evidence map<string,string>, sentence string"
)


def _offenders() -> Iterator[tuple[Any, ...]]:
    yield (
        *(ROGUE, "producer_per_batch", True, 159_040, 0.994, "etl-loader", "10.4.7.19"),
        {"median life of an id": "1.9 s", "requests per id": "1", "ids per connection": "212"},
        "159,040 of its 160,000 new ids were used for a single request, 212 of them over one connection.",
    )
    yield (
        ROGUE,
        "shared_client_id",
        False,
        960,
        0.006,
        "etl-loader",
        None,
        None,
        "41 processes share a name.",
    )
    yield (
        *("carol", "restart_loop", True, 7_120, 0.8, "nightly", "10.4.9.2", {"between starts": "58 s"}),
        "A process at 10.4.9.2 starts every 58 s with a new id and ends after its first record.",
    )
    yield (
        *(HOSTILE, "random_transactional_ids", True, 1_530, 0.5, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),
        f"A sentence with {HOSTILE} in it.",
    )
    for user in QUIET:
        yield (
            user,
            "rolling_deployment",
            False,
            52,
            1.0,
            "app",
            None,
            {"instances": "12"},
            "12 instances at once.",
        )


_RECOMMENDATIONS = (
    "user string, owner string, current_rate double, recommended_rate double, action string, headroom double, "
    "patterns array<string>, reasons array<string>, healthy_refused_train long, healthy_refused_test long, "
    "rogue_ids_admitted_test long, rogue_ids_test long, naive_rate double, naive_rogue_ids_admitted_test long, "
    "naive_healthy_refused_test long, censored boolean, remedies array<string>, judged_rate double, "
    "rogue_ids_admitted long, rogue_ids long"
)


def _recommendations() -> Iterator[tuple[Any, ...]]:
    yield (
        *(ROGUE, "team-etl", 1_000.0, 40.0, "set", 1.5, ["producer_per_batch"]),
        ["Its healthy producers never needed more than 26 new ids in an hour.", f"Seen with {HOSTILE}."],
        *(0, 0, 6_720, 51_000, 520.0, 51_000, 0, True, [], 38.0, 20_000, 159_040),
    )
    yield (
        HOSTILE,
        HOSTILE,
        None,
        None,
        "none",
        None,
        [],
        ["Too little."],
        0,
        0,
        0,
        0,
        None,
        None,
        None,
        False,
        *([], None, 1_530, 1_530),
    )
    yield (
        *("carol", "", None, 20.0, "set", 2.0, ["restart_loop"], []),
        *(0, 0, 900, 7_000, 65.0, 6_900, 0, False, [], 20.0, 900, 7_120),
    )
    for user in QUIET:
        yield (user, None, 100.0, 100.0, "keep", 3.0, [], [], 0, 0, 0, 0, 12.0, 0, 0, False, [], 100.0, 0, 0)
