"""Findings in words, of features written by hand: no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from pidgate.findings.patterns import Pattern
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
