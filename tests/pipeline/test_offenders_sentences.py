"""Findings in words, of features written by hand: no Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.findings.patterns import PATTERN_WORDS, Pattern
from pidgate.findings.rules import PATTERNS
from pidgate.findings.sentences import sentence
from pidgate.pipeline.offenders.findings import finding, findings

LOOP = {
    "user": "loop",
    "client": "billing-7",
    "address": "10.0.3.4",
    "new_ids": 40,
    "bursts": 40.0,
    "interval_ms": 240_000,
    "grown": 5,
    "active_ms": 10_800_000,
    "life_ms": 5_000,
    "pause_ms": None,
    "beat_share": 0.98765,
    "processes": 1,
    "resets": None,
}


def _said(pattern: Pattern = Pattern.RESTART_LOOP, alike: int = 1, **words: Any) -> str:
    return str(finding(pattern, LOOP | words, alike, 40, 50)["sentence"])


def test_a_finding_in_words() -> None:
    row = finding(Pattern.RESTART_LOOP, LOOP, 1, 40, 50)
    assert row["sentence"] == (
        "loop's client billing-7 at 10.0.3.4 is in a restart loop: 40 starts, one after the other, every 4 min, with "
        "growing pauses, 40 new ids in 3 h, each in use for about 5 s"
    )
    assert (row["harmful"], row["new_ids"], row["share"]) == (True, 40, 0.8)
    assert dict(row["evidence"]) == {
        "new_ids": "40",
        "bursts": "40.0",
        "interval_ms": "240000",
        "beat_share": "0.988",
        "grown": "5",
        "processes": "1",
        "sources": "1",
    }


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ({"client": "billing-*"}, "loop's clients billing-* at 10.0.3.4 are in"),
        ({"client": "*"}, "loop's clients of several names at"),
        ({"client": ""}, "loop's clients without a name at"),
        ({"address": None}, "billing-7 at several addresses is"),
        ({"grown": None}, "every 4 min, 40 new ids"),
        ({"interval_ms": None}, "every ?, with"),
        ({"processes": 3}, "40 starts of about 3 processes, every 4 min"),
        ({"alike": 3}, "about 5 s (and 2 more like it)"),
        ({"user": "a\x1b[2Jb"}, "a\\x1b[2Jb's client"),
        ({"bursts": 12_400.4}, "12,400 starts"),
    ],
)
def test_words_agree_with_what_is_known(words: dict[str, Any], part: str) -> None:
    assert part in _said(**words)


@pytest.mark.parametrize(("share", "part"), [(0.9999, "99 %"), (1.0, "100 %"), (None, "?")])
def test_all_is_said_of_all_alone(share: float | None, part: str) -> None:
    said = _said(Pattern.PRODUCER_PER_ERROR, failed=share, error_code=10)
    assert f"on each error: {part} of its 40 new ids" in said


def test_what_fits_nothing_is_said_too() -> None:
    calm = {**LOOP, "user": "x", "pattern": None, "new_ids": 30}
    steady = {**LOOP, "user": "x", "pattern": Pattern.STEADY, "new_ids": 10, "long_ids": 3}
    known, row = findings([], [calm, steady])
    assert (known["pattern"], known["share"]) == (Pattern.STEADY, 0.25)
    assert (row["pattern"], row["sentence"], row["evidence"]) == (
        "unknown",
        "x: 30 of 40 new ids fit no known pattern",
        [("unexplained", "30")],
    )
    (few,) = findings([], [{**calm, "new_ids": 3}])
    assert few["sentence"] == "x: too little is known, 3 new ids"


# Each sentence taken apart: what it says is what the features say

COUNT, TIME, SHARE = r"[\d,]+", r"[\d.,]+ (?:ms|s|min|h|d)", r"\d+ %"
TOLD: Final[Mapping[Pattern, str]] = {
    Pattern.RESTART_LOOP: (
        rf"a restart loop: (?P<bursts>{COUNT}) starts(?:, one after the other| of about (?P<processes>{COUNT}) "
        rf"processes), every "
        rf"(?P<interval_ms>{TIME})(?P<growing>, with growing pauses)?, (?P<new_ids>{COUNT}) new ids in "
        rf"(?P<active_ms>{TIME})"
        rf"(?:, (?P<ids_per_burst>{COUNT}) at each start)?, each in use for about (?P<life_ms>{TIME})"
    ),
    Pattern.PRODUCER_PER_ERROR: (
        rf"(?P<failed>{SHARE}) of its (?P<new_ids>{COUNT}) new ids in (?P<active_ms>{TIME}) ended with one "
        rf"\(code (?P<error_code>{COUNT})\), each in use for about (?P<life_ms>{TIME})"
    ),
    Pattern.PRODUCER_PER_BATCH: (
        rf"(?P<new_ids>{COUNT}) new ids in (?P<active_ms>{TIME}), (?P<one_request>{SHARE}) of them sent one request, "
        rf"(?P<short_lived>{SHARE}) lived under a second(?:, (?P<pooled>{COUNT}) ids per connection)?"
    ),
    Pattern.PRODUCER_PER_TASK: (
        rf"(?P<new_ids>{COUNT}) new ids in (?P<active_ms>{TIME}), each in use for about (?P<life_ms>{TIME}), "
        rf"(?P<requests>{COUNT}) requests each"
    ),
    Pattern.RANDOM_TRANSACTIONAL_IDS: (
        rf"(?P<new_ids>{COUNT}) new ids in (?P<active_ms>{TIME}), (?P<names>{COUNT}) different transactional ids"
    ),
    Pattern.STEADY: rf"(?P<long_ids>{COUNT}) long-lived producers?(?:, (?P<new_ids>{COUNT}) new ids?)?",
    Pattern.ROLLING_DEPLOYMENT: rf"(?P<replacements>{COUNT}) times all instances \(up to (?P<instances>{COUNT})\)",
    Pattern.AUTOSCALING: (
        rf"(?P<alive_least>{COUNT}) to (?P<alive_most>{COUNT}) instances, (?P<late_ids>{COUNT}) starts"
    ),
    Pattern.CRON_JOB: (
        rf"by the clock, every (?P<interval_ms>{TIME}): (?P<bursts>{COUNT}) runs with "
        rf"(?P<ids_per_burst>{COUNT}) new ids "
        rf"each, each in use for about (?P<life_ms>{TIME})"
    ),
    Pattern.SHARED_ADDRESS: (
        rf"(?P<met_at_address>{COUNT}) clients behind one address, 10.0.3.4: (?P<alive_at_address>{COUNT}) "
        rf"producers at "
        rf"once, (?P<new_ids>{COUNT}) new ids"
    ),
    Pattern.SHARED_CLIENT_ID: (
        rf"(?P<met_at_client_id>{COUNT}) addresses with the client id billing-7: "
        rf"(?P<alive_at_client_id>{COUNT}) producers "
        rf"at once, (?P<new_ids>{COUNT}) new ids"
    ),
}
COUNTS: Final = (
    "bursts", "processes", "new_ids", "ids_per_burst", "error_code", "requests", "names", "long_ids", "replacements",
    "instances", "alive_least", "alive_most", "late_ids", "met_at_address", "alive_at_address", "met_at_client_id",
    "alive_at_client_id", "grown",
)  # fmt: skip
TIMES: Final = ("interval_ms", "active_ms", "life_ms", "run_ms", "pause_ms")
SHARES: Final = ("failed", "one_request", "short_lived", "beat_share")
IN_MS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

features = st.fixed_dictionaries(
    dict.fromkeys(COUNTS, st.integers(1, 2_000_000))
    | dict.fromkeys(TIMES, st.integers(1, 10**10))
    | dict.fromkeys(SHARES, st.floats(0, 1))
    | {"connections": st.floats(0.001, 1)}
)


def test_every_pattern_of_the_pipeline_has_its_sentence_taken_apart() -> None:
    assert set(TOLD) == set(PATTERNS) - {Pattern.UNKNOWN}
    assert all(PATTERN_WORDS[pattern].sentence for pattern in TOLD)


@given(st.sampled_from(sorted(TOLD)), features, st.integers(1, 4))
def test_each_sentence_says_what_the_features_say(pattern: Pattern, of: dict[str, Any], alike: int) -> None:
    said = sentence(
        pattern, {**LOOP, **of, "crowd_address": "10.0.3.4", "crowd_client_id": "billing-7"}, alike
    )
    told = re.search(TOLD[pattern], said)
    assert told is not None, said
    for name, words in told.groupdict().items():
        if name == "growing":
            backs_off = of["grown"] >= max(3, 0.1 * of["bursts"]) and of["beat_share"] >= 0.5
            assert (words is not None) is backs_off
        elif name == "pooled":
            assert (words is None) is (of["connections"] > 0.5)
            assert words is None or abs(_count(words) - 1 / of["connections"]) <= 0.5
        elif words is None:
            assert of[name] == 1, name
        elif name in SHARES:
            per_cent = int(words.removesuffix(" %"))
            assert abs(per_cent - 100 * of[name]) <= 1
            assert (per_cent == 100) is (of[name] == 1)
        elif name in TIMES:
            number, unit = words.split()
            allowed = max(0.5 * IN_MS[unit], 0.06 * of[name])
            assert abs(float(number.replace(",", "")) * IN_MS[unit] - of[name]) <= allowed
        else:
            assert _count(words) == of[name]
    assert said.endswith(f" (and {alike - 1} more like it)") is (alike > 1)


def _count(words: str) -> int:
    return int(words.replace(",", ""))
