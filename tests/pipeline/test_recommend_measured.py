"""Needs and rates of users whose right values are known, without Spark: the health of each id is given."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pidgate.pipeline.recommend.measured import MEASURES, Course, measured
from pidgate.pipeline.recommend.trial import Arrivals, Cost, cost_at, least_rate
from pidgate.quota.settings import ProducerIdSettings
from tests.pipeline.made_events import DAY, HOUR, MONDAY
from tests.pipeline.recommend_cases import END, SECOND, Cases, measured_rows

SETTINGS = ProducerIdSettings()
COURSE = Course(SETTINGS, MONDAY, END - int(2.8 * DAY), END)
THINNER = 10


@cache
def row(case: str) -> dict[str, Any]:
    cases = Cases(thinner=THINNER)
    getattr(cases, case)("u")
    return measures(measured_rows(cases, "u"))


def measures(table: pa.Table, course: Course = COURSE, rate: float | None = None) -> dict[str, Any]:
    (found,) = measured(table, course, lambda _: rate)
    return found


def deployed(pods: int, rate: float) -> Cost:
    """What a rate does to a deployment and its rollback, ten minutes later."""
    at_ms = np.array([again * 600 * SECOND + pod * SECOND for again in range(2) for pod in range(pods)])
    one = np.ones(len(at_ms), np.int64)
    return cost_at(rate, SETTINGS, Arrivals(at_ms, one.astype(bool), one, one))


@pytest.mark.parametrize("case", ["rogue_only", "bridge", "random_transactional_ids", "mixed"])
def test_a_rogue_has_a_cap_that_refuses_nobody_and_a_rate_for_the_mended_client(case: str) -> None:
    found = row(case)
    assert found["rogue_ids"] > 500
    assert found["cap"] == asdict(Cost())
    assert found["cap_rate"] >= 1.5 * found["least_rate"] > 2 * found["mended_rate"] * (case == "mixed")
    assert deployed(int(found["mended_rate"]) // 2, found["mended_rate"]) == Cost()
    price = found["mended"]
    assert price["refused_ids"] > 0.1 * found["ids"]
    assert 0 < price["refused_requests"] < found["requests"]
    assert price["refused_records"] == 10 * price["refused_requests"]
    assert price["longest_wait_ms"] > 60 * SECOND


def test_beside_a_loop_of_two_starts_a_minute_the_cap_is_its_pace_with_headroom() -> None:
    found = row("mixed")
    assert (found["least_rate"], found["cap_rate"]) == (120, 180)
    assert (found["instances"], found["mended_rate"]) == (10, 20)


def test_four_workers_with_a_new_transactional_id_every_ten_minutes_need_24_an_hour() -> None:
    found = row("random_transactional_ids")
    assert (found["least_rate"], found["instances"]) == (24, 4)
    assert found["rogue_transactional_ids"] == found["ids"]


def test_the_rate_covers_the_batch_day_and_names_it() -> None:
    found = row("weekly")
    assert found["cap_rate"] == found["mended_rate"] == 450
    assert (found["peak_weekday"], found["peak_weeks"]) == (3, 2)
    assert (found["judged_cap_refused"], found["judged_ids"]) == (0, 300)


@pytest.mark.parametrize("days_kept_back", [0, 20])
def test_a_user_without_ids_before_or_after_the_split_is_not_judged(days_kept_back: int) -> None:
    cases = Cases(thinner=THINNER)
    cases.rogue_only("u")
    course = replace(COURSE, split_ms=END - days_kept_back * DAY)
    found = measures(measured_rows(cases, "u"), course)

    assert found.keys() >= set(MEASURES.names)
    assert (found["judged_cap_rate"], found["judged_ids"]) == (None, None)
    assert found["ids"] > 500


def test_ids_seen_by_two_gateways_count_once() -> None:
    found = row("fleet")
    assert (found["ids"], found["rogue_ids"]) == (240, 0)
    assert found["cap_rate"] == found["mended_rate"] >= 40


def test_refusals_are_told_with_the_rate() -> None:
    found = row("censored")
    assert (found["ids"], found["healthy_refusals"]) == (480, 12 * 29 * 12)
    assert found["least_rate"] == least_rate_of("censored") == 38


def least_rate_of(case: str) -> float:
    """Of the fullest day alone, which is the fullest hour."""
    cases = Cases()
    getattr(cases, case)("u")
    at_ms = np.sort(measured_rows(cases, "u").column("at_ms").to_numpy())
    first = at_ms[at_ms < MONDAY + DAY]
    one = np.ones(len(first), np.int64)
    return least_rate(SETTINGS, Arrivals(first, one.astype(bool), one, one))


def test_a_fleet_that_grows_is_told_and_gets_more_room() -> None:
    cases = Cases()
    for day in range(21):
        for pod in range(20 if day < 14 else 30):
            cases.one("u", f"app-{day}f{pod}c", "10.0.0.1", MONDAY + day * DAY + pod * SECOND, HOUR)
    course = Course(SETTINGS, MONDAY, MONDAY + 14 * DAY, MONDAY + 21 * DAY)
    found = measures(measured_rows(cases, "u"), course)
    assert (found["growth"], found["cap_rate"]) == (1.5, 66), "30 pods, headroom, and growth"
    assert (found["ids_last_week"], found["ids_week_before"]) == (210, 140)


def test_shuffled_rows_give_the_same() -> None:
    cases = Cases(thinner=THINNER)
    cases.mixed("u")
    table = measured_rows(cases, "u")
    order = np.random.default_rng(3).permutation(len(table))
    assert measures(table.take(order), rate=30.0) == measures(table, rate=30.0)
