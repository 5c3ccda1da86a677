"""Each sentence of `recommend` taken apart, and its claim computed again from the user's history and the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.findings.patterns import PATTERN_WORDS, Pattern, pattern_words
from pidgate.pipeline.recommend import sentences
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.recommend.measured import INPUT, Course, measured
from pidgate.pipeline.recommend.recommended import HARMFUL, Question, advised_user
from pidgate.pipeline.recommend.trial import Cost
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import Outcome, QuotaReplay
from pidgate.units import about_duration
from tests.pipeline.made_events import DAY, HOUR, MONDAY

SETTINGS = ProducerIdSettings()
DAYS = 15
COURSE = Course(SETTINGS, MONDAY, MONDAY + 8 * DAY, MONDAY + DAYS * DAY)
TOTALS = {
    "history_ms": DAYS * DAY,
    "history_days": DAYS,
    "broker_share": 0.5,
    "least_history_ms": 7 * DAY,
    "least_days": 5,
    "least_ids": 20,
    "heap_bytes": 2 << 30,
    "states_that_fit": 6_000_000.0,
}
EXPIRY = DAY

Row = dict[str, Any]


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Days with a deployment each, and on some a rogue of so many ids that follow each other."""
    rows: list[Row] = []
    pods = draw(st.integers(0, 12))
    for day in range(DAYS):
        for pod in range(pods * draw(st.sampled_from((0, 1, 1, 1, 4)))):
            at_ms = MONDAY + day * DAY + 9 * HOUR + pod * draw(st.integers(1, 60_000))
            rows.append(
                _row(
                    at_ms, healthy=True, requests=draw(st.integers(0, 5_000)), life=draw(st.integers(0, DAY))
                )
            )
    transactional = draw(st.booleans())
    for day in draw(st.lists(st.integers(0, DAYS - 1), max_size=4)):
        pause = draw(st.integers(100, 120_000))
        for number in range(draw(st.integers(1, 60))):
            at_ms = MONDAY + day * DAY + 10 * HOUR + number * pause
            rows.append(
                _row(at_ms, healthy=False, requests=draw(st.integers(0, 3)), transactional=transactional)
            )
    refused = draw(st.sampled_from((0, 0, 3)))
    for row in rows[:refused]:
        row["refusals"] = 2
    return rows


def _row(at_ms: int, *, healthy: bool, requests: int, life: int = 0, transactional: bool = False) -> Row:
    return {
        "user": "u", "at_ms": at_ms, "healthy": healthy, "transactional": transactional, "refusals": 0,
        "address": at_ms % 3, "requests": requests, "records": 7 * requests, "partitions": 2, "first_ms": at_ms,
        "last_ms": at_ms + life,
    }  # fmt: skip


def cost(rows: list[Row], rate: float) -> Cost:
    """One arrival after the other."""
    found = Cost()
    if not rows:
        return found
    replay, outcomes = QuotaReplay(round(rate * 1000), SETTINGS, rows[0]["at_ms"]), []
    for row in rows:
        outcome = Outcome()
        replay.add_arrival(row["at_ms"], outcome, retries=row["healthy"])
        if outcome.refused and not row["healthy"]:
            outcome.gave_up, outcome.longest_wait_ms = 1, replay.bucket.wait_ms(0, row["at_ms"])
        outcomes.append(outcome)
    replay.finish()
    for row, outcome in zip(rows, outcomes, strict=True):
        found.refused_ids += outcome.refused
        found.refused_healthy_ids += outcome.refused * row["healthy"]
        found.refused_requests += outcome.gave_up * row["requests"]
        found.refused_records += outcome.gave_up * row["records"]
        found.longest_wait_ms = max(found.longest_wait_ms, outcome.longest_wait_ms)
    return found


def least(rows: list[Row]) -> float:
    """The first rate of two digits that refuses nobody."""
    grid = [*range(1, 100), *range(100, 1_000, 10)]
    return next((rate for rate in grid if not cost(rows, rate).refused_ids), 0) if rows else 0


def alive(rows: list[Row]) -> int:
    lives = [(row["first_ms"], row["last_ms"]) for row in rows if row["healthy"]]
    lives = [life for life in lives if life[1] - life[0] > HOUR]
    most = max((sum(first <= at <= last for first, last in lives) for at, _ in lives), default=0)
    hours: dict[int, set[int]] = {}
    for row in rows:
        if not row["healthy"]:
            hours.setdefault(row["at_ms"] // HOUR, set()).add(row["address"])
    return max([most, *map(len, hours.values())])


def n(text: str) -> float:
    return float(text.replace(",", ""))


class Claims:
    """What a sentence may say, and how it is computed again. `find` raises if none or two patterns fit."""

    def __init__(self, rows: list[Row], row: Row) -> None:
        self.rows, self.row = rows, row
        self.healthy = [one for one in rows if one["healthy"]]
        held_out = [one for one in rows if one["at_ms"] >= COURSE.split_ms]
        ids = "(?:new )?ids?"
        self.known: dict[str, Callable[..., None]] = {
            rf".*: ([\d,]+) of ([\d,]+) {ids} are its own": partial(
                self.counts, len(rows) - len(self.healthy), len(rows)
            ),
            rf"cap for now: ([\d,]+); .* of its {ids} as they came is ([\d,]+) \(headroom 1\.5, growth (.*)\)": (
                self.cap
            ),
            r"(cap|after mending): ([\d,]+); (.*), and a deployment of (\d+) instances with its rollback brings "
            r"(\d+)": self.mended,
            rf"(the .*) \(([\d,.]+)\) would have refused none of ([\d,]+) {ids}": self.free,
            rf"(the .*) \(([\d,.]+)\) would have refused ([\d,]+) of ([\d,]+) {ids} \(([\d,]+) healthy\), ([\d,]+) of "
            r"([\d,]+) requests? and ([\d,]+) of ([\d,]+) records?; the longest wait is (.*)": self.price,
            r"the .* \(([\d,]+)\) allows ([\d,]+) producer states? on a broker, (.*) % of the room in 2GiB of heap": (
                self.states
            ),
            rf"judged on the held-out days: .* \(([\d,]+)\) refuses ([\d,]+) of ([\d,]+) {ids}, ([\d,]+) of ([\d,]+) "
            "healthy ones?": partial(self.judged, held_out),
            "not judged: .*": partial(self.unjudged, held_out),
            r"its fullest day is (\w+), seen in (\d+) weeks": self.weekly,
            r"([\d,]+) of its rogue ids are transactional, .*": lambda count: self.counts(
                sum(one["transactional"] for one in rows), count
            ),
            r"a lower bound: ([\d,]+) refusals? of healthy ids .*": lambda count: self.counts(self.refusals, count),
            r"([\d,]+) refusals? of healthy ids kept .*": lambda count: self.counts(self.refusals, count),
            rf"too little evidence: ([\d,]+) {ids}; a rate needs 20 .*": lambda count: self.counts(len(rows), count),
            r"too little evidence: data on (\d+) of 15 days; a rate needs 5 .*": lambda count: self.counts(
                self.row["days"], count
            ),
            "no new ids in these days": lambda: self.counts(len(rows), "0"),
            re.escape(sentences.ONLY_OBSERVED): lambda: None,
        }  # fmt: skip

    @property
    def refusals(self) -> int:
        return sum(one["refusals"] for one in self.healthy)

    def check(self, sentence: str) -> None:
        found = [
            (found, of) for pattern, of in self.known.items() if (found := re.fullmatch(pattern, sentence))
        ]
        assert len(found) == 1, sentence
        match, of = found[0]
        of(*match.groups())

    def counts(self, *numbers: float | str) -> None:
        half = len(numbers) // 2
        assert list(numbers[:half]) == [n(str(one)) for one in numbers[half:]]

    def cap(self, rate: str, least_rate: str, growth: str) -> None:
        assert n(least_rate) == least(self.rows)
        assert n(rate) >= 1.5 * float(growth) * n(least_rate) - 0.01
        assert not cost(self.rows, n(rate)).refused_ids

    def mended(self, word: str, rate: str, alone: str, instances: str, brings: str) -> None:
        assert (word == "cap") is (len(self.healthy) == len(self.rows))
        assert n(instances) == max(5, alive(self.rows))
        assert n(brings) == 2 * n(instances) <= n(rate)
        if not self.healthy:
            assert alone == "it has no healthy id"
            return
        found = re.fullmatch(
            r"the least rate that refuses none of its ([\d,]+) healthy ids? is ([\d,]+) \(headroom 1\.5, growth .*\)",
            alone,
        )
        assert found
        assert (n(found[1]), n(found[2])) == (len(self.healthy), least(self.healthy))
        assert not cost(self.healthy, n(rate)).refused_ids

    def named(self, name: str, rate: str) -> float:
        of = {
            "the rate in force": "current_rate",
            "the cap for now": "cap_rate",
            "the rate after mending": "mended_rate",
        }
        assert n(rate) == self.row[of[name]]
        return n(rate)

    def free(self, name: str, rate: str, count: str) -> None:
        assert not cost(self.rows, self.named(name, rate)).refused_ids
        assert n(count) == len(self.rows)

    def price(self, name: str, rate: str, *said: str) -> None:
        found = cost(self.rows, self.named(name, rate))
        totals = [sum(one[of] for one in self.rows) for of in ("requests", "records")]
        expected = [
            found.refused_ids, len(self.rows), found.refused_healthy_ids, found.refused_requests, totals[0],
            found.refused_records, totals[1],
        ]  # fmt: skip
        assert [n(one) for one in said[:-1]] == expected
        assert said[-1] == about_duration(found.longest_wait_ms)

    def states(self, rate: str, count: str, share: str) -> None:
        """Ids of a bucket and of the time until they expire, ten minutes later at most; half of two partitions each."""
        assert abs(n(count) - (n(rate) * (1 + 24 + 1 / 6) + 1)) <= 1
        assert share == f"{100 * n(count) / 6_000_000:.3g}"

    def judged(self, held_out: list[Row], rate: str, *said: str) -> None:
        before = [one for one in self.rows if one["at_ms"] < COURSE.split_ms]
        assert n(rate) >= 1.5 * least(before)
        both, first = cost(self.rows, n(rate)), cost(before, n(rate))
        healthy = sum(one["healthy"] for one in held_out)
        expected = [both.refused_ids - first.refused_ids, len(held_out)]
        expected += [both.refused_healthy_ids - first.refused_healthy_ids, healthy]
        assert [n(one) for one in said] == expected

    def unjudged(self, held_out: list[Row]) -> None:
        assert len(held_out) in (0, len(self.rows))

    def weekly(self, day: str, weeks: str) -> None:
        counts = [
            sum(one["at_ms"] // DAY == MONDAY // DAY + number for one in self.healthy)
            for number in range(DAYS)
        ]
        alike = [number for number in range(DAYS) if number % 7 == counts.index(max(counts)) % 7]
        assert day == sentences.WEEKDAYS[alike[0] % 7], "day 0 is a Monday"
        assert n(weeks) == sum(2 * counts[number] >= max(counts) for number in alike)


def advised(rows: list[Row], current: float | None, mode: str = "observe", **story: Any) -> Row:
    """The user's row of `recommendations`."""
    in_force = {
        "current_rate": current,
        "exempt": False,
        "mode": mode,
        "owner": "",
        "source": "file",
        "set_by": "",
    }
    table = pa.Table.from_pylist([{"user": "u", **one} for one in rows] or [{"user": "u"}], INPUT)
    (measures,) = measured(table, COURSE, lambda _: current)
    told = {
        "patterns": [Pattern.PRODUCER_PER_BATCH.value], "rogues": ["client a: 1 of 2"], "days": DAYS,
        "seen_weekly": False, "unnamed_refusals": 0, "first_ms": MONDAY, "last_ms": COURSE.end_ms - 1,
        "client": None, "top_topic": None, "top_broker": None, **story,
    }  # fmt: skip
    row = {"user": "u", **told, **{name: None for name in ("judged_cap_rate",)}, **measures}
    question = Question(
        asked=Asked(),
        config=None,
        shares={"": {1: 0.5}},
        expiry_ms=EXPIRY,
        healthy_by="labels",
        harmful=HARMFUL.empty_table(),
        findings={"u": {name: row.pop(name) for name in ("patterns", "rogues")}},
    )
    return dict(advised_user(question, TOTALS, row | in_force))


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from((None, 1.0, 7.5, 60.0, 900.0)), st.sampled_from(("observe", "enforce")))
def test_each_sentence_says_what_the_history_says(rows: list[Row], current: float | None, mode: str) -> None:
    rows = sorted(
        rows, key=lambda row: (row["at_ms"], row["healthy"], row["address"], row["requests"], row["records"])
    )
    row = advised(rows, current, mode)
    assert row["reasons"]
    for sentence in row["reasons"]:
        Claims(rows, row).check(sentence)
    assert bool(row["remedies"]) == bool(row["rogue_ids"] and row["action"] != "none")


@pytest.mark.parametrize(
    ("story", "said"),
    [({"days": 2}, "too little evidence: data on 2 of 15 days; a rate needs 5 (--least-history)")],
)
def test_what_is_missing_is_said_in_these_words(story: Row, said: str) -> None:
    rows = [_row(MONDAY + number * HOUR, healthy=True, requests=1) for number in range(30)]
    assert advised(rows, None, **story)["reasons"] == [said]


def test_a_wrong_number_is_noticed() -> None:
    rows = [_row(MONDAY + number * 1_000, healthy=False, requests=1) for number in range(60)]
    row = advised(rows, 7.0, rogues=[])
    for sentence in row["reasons"]:
        number = re.search(r"\d+(?= (of|instances|producer states)|\))", sentence)
        if number is not None:
            wrong = f"{sentence[: number.start()]}{int(number[0]) + 1}{sentence[number.end() :]}"
            with pytest.raises(AssertionError):
                Claims(rows, row).check(wrong)


def test_each_harmful_pattern_has_a_remedy_first() -> None:
    rows = [_row(MONDAY + number * HOUR, healthy=False, requests=1) for number in range(30)]
    for pattern in PATTERN_WORDS:
        helps = advised(rows, None, patterns=[pattern.value])["remedies"]
        assert helps[0] == f"fix the client: {pattern_words(pattern.value).remedy}"
        assert not any("principal of its own" in one for one in helps), "it has no healthy neighbour"


def test_what_is_said_of_all_users_is_in_the_totals() -> None:
    totals = {
        **TOTALS, "default_rate": 450.0, "default_users": 40, "default_covers": 38, "default_states": 600_000,
        "recommended_states": 1_200_000, "unlimited": 2, "judged_healthy_ids": 559, "judged_cap_refused_healthy": 1,
    }  # fmt: skip
    assert sentences.overall(totals) == [
        "default for users of tomorrow: 450; enough for 38 of 40 healthy users of today, and each allows 600,000 "
        "producer states on a broker, 10 % of the room in 2GiB of heap",
        "all recommended rates together allow 1,200,000 producer states on a broker, 20 % of the room in 2GiB of heap; "
        "2 users without a rate come on top",
        "in the held-out days the caps learnt before them refuse 1 of 559 healthy ids",
    ]
    without = sentences.overall({**totals, "heap_bytes": None, "states_that_fit": None, "default_rate": None})
    assert without[-2].startswith("the brokers' heap is not known: give it (--heap 6GiB)")
    assert not any("%" in one for one in without)
