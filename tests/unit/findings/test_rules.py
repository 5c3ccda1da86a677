"""Unknown features make no rule fit; which numbers make which pattern is shown by tests/unit/who and tests/pipeline."""

from __future__ import annotations

from dataclasses import fields, replace
from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.findings.features import AppFeatures, SourceFeatures, UserFeatures, as_row, features_of
from pidgate.findings.patterns import Pattern, pattern_words
from pidgate.findings.rules import APPS, EVIDENCE, PATTERNS, SOURCES, USERS, is_unknown, pattern_of

LOOP = SourceFeatures(
    new_ids=40,
    refused_ids=0,
    used=40,
    one_request=0.0,
    two_requests=0.0,
    requests=30.0,
    short_lived=0.0,
    life_ms=20_000,
    failed=0.0,
    alive=0.3,
    bursts=40,
    interval_ms=60_500,
    pause_ms=40_000,
    beat_share=0.9,
    overlap_share=0.0,
    processes=1,
    run_ms=20_000,
    ids_per_burst=1.0,
    resets=0.5,
)
APP = AppFeatures(
    late_ids=40,
    late_long=0.4,
    long_ids=3,
    long_time=0.95,
    over_life_ms=90_000,
    growths=4,
    alive=5,
    alive_most=9,
    alive_least=2,
    replacements=2,
    replaced_ids=30,
    met_at_address=9,
    alive_at_address=3,
    met_at_client_id=9,
    alive_at_client_id=3,
)
READ_AS_NONE = {"failed", "clock_ms"}
"""No known error is none; the clock's period is known where its concentration is."""


@given(
    st.sampled_from([one.name for one in fields(SourceFeatures) if one.name not in READ_AS_NONE]),
    st.dictionaries(
        st.sampled_from([one.name for one in fields(SourceFeatures) if one.name != "clock_ms"]),
        st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 8.0, 40.0, 3_000.0, 20_000.0, 400_000.0]),
    ),
)
def test_a_feature_that_becomes_unknown_makes_no_source_rule_fit(
    name: str, changed: dict[str, float]
) -> None:
    known = replace(LOOP, **changed)
    unknown = replace(known, **{name: nan})
    for rule in SOURCES:
        assert rule.fits(known) or not rule.fits(unknown), rule.pattern


@pytest.mark.parametrize("name", [one.name for one in fields(AppFeatures)])
def test_a_feature_that_becomes_unknown_makes_no_application_rule_fit(name: str) -> None:
    for rule in APPS:
        assert rule.fits(APP) or not rule.fits(replace(APP, **{name: nan})), rule.pattern


def test_rules_are_read_from_the_top() -> None:
    assert pattern_of(SOURCES, LOOP) is Pattern.RESTART_LOOP
    assert pattern_of(APPS, APP) is Pattern.ROLLING_DEPLOYMENT
    assert pattern_of(APPS, replace(APP, replacements=0)) is Pattern.SHARED_ADDRESS


def test_every_rule_shows_features_that_exist() -> None:
    for rules, kind in ((SOURCES, SourceFeatures), (APPS, AppFeatures), (USERS, UserFeatures)):
        names = {one.name for one in fields(kind)}
        assert all(set(EVIDENCE[rule.pattern]) <= names for rule in rules)
    assert Pattern.UNKNOWN in PATTERNS


def test_rows_become_features_and_features_rows() -> None:
    features = features_of(SourceFeatures, {"new_ids": 3, "resets": None, "source": 7})
    assert features.new_ids == 3
    assert isnan(features.resets)
    assert isnan(features.alive)
    row = as_row(features)
    assert (row["new_ids"], row["resets"]) == (3, None)


@pytest.mark.parametrize(("rest", "all_ids", "expected"), [(8, 15, True), (8, 16, False), (7, 7, False)])
def test_what_most_new_ids_do_not_fit_is_unknown(rest: int, all_ids: int, expected: bool) -> None:
    assert is_unknown(rest, all_ids) is expected


def test_a_pattern_of_a_newer_version_has_words() -> None:
    assert pattern_words("solar_flare").name == "Solar flare"
    assert pattern_words("steady").name == "Steady"
