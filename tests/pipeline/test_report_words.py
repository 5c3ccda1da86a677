"""The report's parts that need neither Spark nor a browser: words, markup, time, findings, sections."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from pidgate.findings.patterns import HARMFUL, PATTERN_WORDS, Pattern
from pidgate.pipeline.ingest.clocks import Doubts, WrongClock
from pidgate.pipeline.report import rows
from pidgate.pipeline.report.charts import stacked
from pidgate.pipeline.report.findings import Finding, Weight, findings, goes_on, name_of, summary
from pidgate.pipeline.report.page import environment, page
from pidgate.pipeline.report.rows import (
    DAY_MS,
    HOUR_MS,
    JOB_OF,
    MINUTE_MS,
    Found,
    Row,
    Series,
    Span,
    UserRow,
    span_between,
)
from pidgate.pipeline.report.words import (
    count,
    duration,
    listed,
    share,
    size,
)
from pidgate.units import counted

NASTY = "</script><script>alert(1)</script>\"'&<img onerror=x>"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (count(1_234_567), "1,234,567"),
        (count(0.25), "0.25"),
        (counted(2_000, "user"), "2,000 users"),
        (share(0.995), "99.5 %"),
        (share(0.999999), "99.99 %"),
        (share(0.00084), "0.084 %"),
        (duration(4_200), "4.2 s"),
        (duration(2 * HOUR_MS + 5 * MINUTE_MS), "2.1 h"),
        (size(52 << 20), "54.5 MB"),
        (listed(["a", "b", "c", "d"], 2), "a, b and 2 more"),
    ],
)
def test_numbers_as_people_read_them(said: str, expected: str) -> None:
    assert said == expected


# Markup


def _made(template: str, **values: object) -> str:
    return environment(Path()).from_string(template).render(values)


def test_what_is_not_markup_is_escaped_in_text_and_attributes() -> None:
    template = '<p title="{{ nasty }}" hidden>{{ nasty }}{{ bold }}{{ nothing }}{{ 7 }}</p>'
    made = _made(template, nasty=NASTY, bold=Markup("<b>x</b>"), nothing=None)

    assert made.count("<") == 4
    assert "&lt;img onerror=x&gt;" in made
    assert 'title="&lt;/script&gt;' in made
    assert "&#34;&#39;&amp;" in made
    assert made.endswith("<b>x</b>7</p>")
    assert " hidden>" in made


def test_json_in_a_script_cannot_end_it() -> None:
    text = _made("{{ value | tojson }}", value={NASTY: [NASTY, "\u2028"]})

    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {NASTY: [NASTY, "\u2028"]}


def test_characters_that_deceive_are_made_visible() -> None:
    template = "<b>{{ name }}</b>"
    assert _made(template, name="a\u202eb\x00c\x9b") == "<b>a\ufffdb\ufffdc\ufffd</b>"
    assert _made(template, name="müller-東京") == "<b>müller-東京</b>"


# Charts


def test_bars_stand_on_each_other_and_their_scale_is_round() -> None:
    span = Span(0, HOUR_MS, 3)
    chart = stacked(span, [Series("a", [0, 3, 0]), Series(None, [0, 4, 1])], "new ids")

    assert [line.path for line in chart.lines] == [
        "M1 100h.9V62.5h-.9z",
        "M1 62.5h.9V12.5h-.9zM2 100h.9V87.5h-.9z",
    ]
    assert [(line.name, line.look) for line in chart.lines] == [("a", "series-1"), ("all others", "others")]
    assert [(tick.at, tick.text) for tick in chart.up] == [
        (0, "0"),
        (25, "2"),
        (50, "4"),
        (75, "6"),
        (100, "8"),
    ]


@pytest.mark.parametrize(
    ("start_ms", "step_ms", "steps", "expected"),
    [
        (
            13 * HOUR_MS + 40 * MINUTE_MS,
            MINUTE_MS,
            60,
            ["13:40 1 Jan", "13:50", "14:00", "14:10", "14:20", "14:30"],
        ),
        (22 * HOUR_MS, HOUR_MS, 24, ["00:00 2 Jan", *(f"{hour:02}:00" for hour in range(3, 22, 3))]),
        (0, HOUR_MS, 12 * 24, ["1 Jan", "3 Jan", "5 Jan", "7 Jan", "9 Jan", "11 Jan"]),
        (0, DAY_MS, 200, ["1 Jan", "29 Jan", "26 Feb", "26 Mar", "23 Apr", "21 May", "18 Jun", "16 Jul"]),
    ],
)
def test_the_time_axis_of_any_history_is_read(
    start_ms: int, step_ms: int, steps: int, expected: list[str]
) -> None:
    chart = stacked(Span(start_ms, step_ms, steps), [Series("a", [1] * steps)], "new ids")

    assert [tick.text for tick in chart.across] == expected
    assert all(0 <= tick.at < 100 for tick in chart.across)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=5))
def test_every_value_has_its_place_below_the_head_of_the_axis(values: list[float]) -> None:
    counts = [round(value) for value in values]
    chart = stacked(Span(0, HOUR_MS, len(counts)), [Series("a", counts)], "new ids")

    tops = [float(top) for top in re.findall(r"V([-\d.]+)", chart.lines[0].path)]
    head = float(chart.up[-1].text.replace(",", "")) or 1.0
    assert all(0 <= top <= 100 for top in tops)
    assert tops == pytest.approx([100 - 100 * one / head for one in counts if one], abs=0.06)
    assert len(chart.up) <= 7


# Time


@pytest.mark.parametrize(
    ("long_ms", "step_ms"),
    [
        (50_000, MINUTE_MS),
        (5 * HOUR_MS, MINUTE_MS),
        (30 * DAY_MS, HOUR_MS),
        (70 * DAY_MS, DAY_MS),
        (3_000 * DAY_MS, 2 * DAY_MS),
    ],
)
def test_a_history_of_any_length_is_few_steps(long_ms: int, step_ms: int) -> None:
    span = span_between(DAY_MS + 1, DAY_MS + 1 + long_ms)

    assert span.step_ms == step_ms
    assert span.steps <= 1_501
    assert span.start_ms <= DAY_MS + 1
    assert span.start_ms + span.steps * step_ms > DAY_MS + 1 + long_ms


# Findings


def _found(users: Sequence[UserRow] = (), **more: object) -> Found:
    has = frozenset(("rates_users", "offenders", "recommendations"))
    counts = {"users": 2, "new_ids": 100, "ids": 110, "refusals": 0, "refused_ids": 0, "gave_up": 0}
    totals = {"first_ms": 0, "last_ms": DAY_MS, **counts}
    empty = Found(tables="t", made_ms=0, window_ms=HOUR_MS, has=has, totals=totals)
    return replace(empty, users=users, pages=len(users), **more)  # type: ignore[arg-type]


def _pattern(user: str, pattern: str, ids: int, share_: float, *, harmful: bool) -> dict[str, Any]:
    known = {"user": user, "pattern": pattern, "harmful": harmful, "new_ids": ids, "share": share_}
    return known | {"client_id": "app", "address": None, "evidence": {}, "sentence": f"{user} did it."}


def _advice(user: str, action: str, **changed: Any) -> Row:
    price = dict.fromkeys(
        ("refused_ids", "refused_healthy_ids", "refused_requests", "refused_records", "longest_wait_ms"), 0
    )
    row = {
        "user": user,
        "owner": "team-a",
        "action": action,
        "mode": "observe",
        "lacks": "days",
        "current_rate": None,
        "cap_rate": 180.0,
        "mended_rate": 20.0,
        "recommended_rate": 180.0 if action == "set" else None,
        "least_rate": 120.0,
        "least_healthy_rate": 9.0,
        "headroom": 1.5,
        "growth": 1.0,
        "instances": 10,
        "ids": 90,
        "rogue_ids": 81,
        "requests": 9_000,
        "records": 90_000,
        "now": None,
        "cap": price,
        "mended": {
            **price,
            "refused_ids": 60,
            "refused_requests": 700,
            "refused_records": 7_000,
            "longest_wait_ms": 180_000,
        },
        "cap_states": 9_062,
        "mended_states": 1_009,
        "rogue_last_ms": 5 * DAY_MS,
        "ids_last_week": 50,
        "ids_week_before": 40,
        "days": 11,
        "client": "java 3.7",
        "top_topic": "orders",
        "top_broker": 2,
        "reasons": ["too little evidence: data on 2 of 12 days; a rate needs 5 (--least-history)"],
        "remedies": [],
    }
    return row | changed


TOTALS = {
    "default_rate": None,
    "recommended_states": 9,
    "unlimited": 0,
    "heap_bytes": None,
    "states_that_fit": None,
    "judged_healthy_ids": 0,
    "history_days": 12,
    "end_ms": 10 * DAY_MS,
}
ROGUE = UserRow(
    "mallory",
    patterns=[_pattern("mallory", Pattern.PRODUCER_PER_BATCH, 81, 0.9, harmful=True)],
    recommendation=_advice("mallory", "set"),
)
QUIET = UserRow("alice", patterns=[_pattern("alice", Pattern.CRON_JOB, 10, 1.0, harmful=False)])
STRANGE = UserRow("bob", patterns=[_pattern("bob", Pattern.UNKNOWN, 10, 1.0, harmful=False)])


def test_the_first_finding_names_the_rogue_why_what_to_do_and_its_price() -> None:
    first = findings(_found([ROGUE, QUIET]))[0]

    assert first.weight is Weight.BAD
    assert (
        first.headline
        == "mallory (app) opens a new producer for each batch: 81 new ids, 90 % of all it opened"
    )
    assert first.why == "mallory did it."
    assert "Open one producer when the process starts" in first.action
    assert "Cap for now: 180; the least rate that refuses none of its ids as they came is 120" in first.action
    assert "After mending: 20; " in first.action
    assert "would have refused 60 of 90 ids (0 healthy), 700 of 9,000 requests and 7,000" in first.action
    assert first.user == "mallory"


def test_the_innocent_are_not_accused() -> None:
    found = findings(_found([QUIET]))

    assert [one.weight for one in found] == [Weight.GOOD]
    assert found[0].headline == "1 user without a harmful pattern"
    assert findings(_found([]))[0].headline == "No user burns producer ids"
    assert "burn" not in summary(_found([QUIET]))


def test_an_unknown_cause_is_not_good() -> None:
    found = findings(_found([STRANGE]))

    assert [one.weight for one in found] == [Weight.WARN]
    assert found[0].headline == "1 user with an unknown cause"
    assert "bob" in found[0].why


@pytest.mark.parametrize(
    ("last_ms", "said"),
    [
        (None, "It has no harmful id."),
        (10 * DAY_MS - HOUR_MS, "Goes on: its last harmful id came 1 h before the end of the history."),
        (5 * DAY_MS, "Its last harmful id came on 1970-01-06 00:00 UTC."),
    ],
)
def test_whether_it_goes_on_is_said(last_ms: int | None, said: str) -> None:
    assert goes_on({"rogue_last_ms": last_ms}, 10 * DAY_MS) == said


def test_one_user_with_two_harmful_patterns_is_not_counted_twice() -> None:
    both = replace(
        ROGUE, patterns=[*ROGUE.patterns, _pattern("mallory", Pattern.RESTART_LOOP, 9, 0.1, harmful=True)]
    )

    assert both.burnt_ids == 90
    assert "also restart loop" in findings(_found([both]))[0].headline


def test_a_user_without_a_name_can_be_accused() -> None:
    nobody = replace(ROGUE, user="", recommendation=_advice("", "none"))

    assert findings(_found([nobody]))[0].headline.startswith("(no user name) (app) opens")
    action = findings(_found([nobody]))[0].action
    assert action.endswith("Too little evidence: data on 2 of 12 days; a rate needs 5 (--least-history).")


# Each sentence of the findings taken apart


def _counted(text: str) -> int:
    return int(text.replace(",", ""))


def _claims(found: Found, one: Finding) -> None:
    """Compute what a finding says from the rows again."""
    users = {name_of(user.user): user for user in found.users}
    guilty = [user for user in found.users if any(pattern["harmful"] for pattern in user.patterns)]
    if one.weight is Weight.BAD and one.user is not None:
        name, does, ids, part, also = _match(
            r"(\S+) \(app\) (.*): ([\d,]+) new ids?, (\S+) % of all it opened(; also .*)?", one.headline
        )
        harmful = sorted(
            (pattern for pattern in users[name].patterns if pattern["harmful"]),
            key=lambda found: -found["new_ids"],
        )
        assert does == PATTERN_WORDS[Pattern(harmful[0]["pattern"])].does
        assert (_counted(ids), f"{part} %") == (harmful[0]["new_ids"], share(harmful[0]["share"]))
        assert (also is None) is (len(harmful) == 1)
        assert one.why == f"{name} did it."
    elif one.weight is Weight.BAD:
        (more,) = _match(r"([\d,]+) more users? with harmful patterns", one.headline)
        assert _counted(more) == len(guilty) - 8
    elif "lower bounds" in one.headline:
        assert found.advice is not None
        assert (
            _counted(_match(r"The rates of ([\d,]+) users? are lower bounds", one.headline)[0])
            == found.advice["lower_bounds"]
        )
    elif "unknown cause" in one.headline:
        unknown = [
            user for user in found.users if {found["pattern"] for found in user.patterns} == {Pattern.UNKNOWN}
        ]
        assert _counted(_match(r"([\d,]+) users? with an unknown cause", one.headline)[0]) == len(unknown)
    elif "without a harmful" in one.headline:
        calm = [
            user for user in found.users
            if user not in guilty and {found["pattern"] for found in user.patterns} - {Pattern.UNKNOWN}
        ]  # fmt: skip
        assert _counted(_match(r"([\d,]+) users? without a harmful pattern", one.headline)[0]) == len(calm)
        said = sum(map(_counted, re.findall(r": ([\d,]+)", one.why)))
        assert said == sum(len(user.patterns) for user in calm)
    elif "clock" in one.headline:
        assert (one.headline, one.why) in set(found.clocks.sentences())
    elif "never arrived" in one.headline:
        assert _counted(_match(r"([\d,]+) events? never arrived", one.headline)[0]) == sum(
            (found.lost or {}).values()
        )
    elif "could not be read" in one.headline:
        assert _counted(_match(r"([\d,]+) events? could not be read", one.headline)[0]) == sum(
            (found.dead_letters or {}).values()
        )
    else:
        assert one.headline == "No user burns producer ids"
        assert not guilty


def _match(pattern: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, text)
    assert found is not None, text
    return found.groups()


CLOCKS = Doubts((WrongClock("gw", 2_400_000, 1, 0, 0),), ("gw-2",))
_calm = st.sampled_from((Pattern.CRON_JOB, Pattern.STEADY, Pattern.UNKNOWN))
_harmful = st.sampled_from((Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_BATCH, Pattern.PRODUCER_PER_ERROR))


@st.composite
def _users(draw: st.DrawFn) -> list[UserRow]:
    users = []
    for number in range(draw(st.integers(0, 12))):
        patterns = [
            *draw(st.lists(_calm, max_size=2, unique=True)), *draw(st.lists(_harmful, max_size=2, unique=True))
        ]  # fmt: skip
        ids = draw(
            st.lists(st.integers(1, 99_999), min_size=len(patterns), max_size=len(patterns), unique=True)
        )
        made = [
            _pattern(f"u{number}", pattern, count_, count_ / (sum(ids) + 1), harmful=pattern in HARMFUL)
            for pattern, count_ in zip(patterns, ids, strict=True)
        ]
        users.append(UserRow(f"u{number}", patterns=made))
    return users


@given(_users(), st.integers(0, 3), st.integers(0, 2_000), st.integers(0, 2))
def test_each_finding_says_what_the_rows_say(users: list[UserRow], lower: int, lost: int, dead: int) -> None:
    advice = {"lower_bounds": lower}
    found = _found(users, advice=advice, lost={"gw": lost}, dead_letters={"late": dead}, clocks=CLOCKS)
    told = findings(found)
    assert told
    for one in told:
        _claims(found, one)
    said = summary(found)
    guilty = [user for user in users if user.harmful]
    if guilty:
        (burning,) = _match(
            r".*\. ([\d,]+) of them burns? ids: \S+ % of all new ids come from harmful patterns\.", said
        )
        assert _counted(burning) == len(guilty)
    else:
        assert "burn" not in said


# The page


def test_every_field_that_is_read_is_used() -> None:
    """Most are used by templates, into which vulture does not look."""
    folder = Path(rows.__file__).parent
    users = [path.read_text() for path in folder.rglob("*.*") if path.suffix in (".html", ".py")]
    shown = set(
        re.findall(r"(?<=\.)\w+|(?<=attribute=\")\w+|(?<=attr\(\")\w+|(?<=groupby\(\")\w+", "\n".join(users))
    )
    own = [row for row in vars(rows).values() if is_dataclass(row) and row.__module__ == rows.__name__]
    read = {field.name for row in own for field in fields(row)}

    assert len(read) > 25
    assert read - shown == set()


def test_every_part_copes_with_what_was_not_run() -> None:
    text = page(Found(tables="t", made_ms=0, window_ms=HOUR_MS))

    for job in set(JOB_OF.values()):
        assert f"<code>pidgate pipeline {job}</code>" in text, job


def test_names_cannot_leave_their_place_in_the_page() -> None:
    origin = {"client_id": NASTY, "address": NASTY, "evidence": {NASTY: NASTY}, "sentence": NASTY}
    nasty = [
        UserRow(
            NASTY,
            patterns=[_pattern(NASTY, NASTY, 9, 1.0, harmful=True) | origin],
            recommendation=_advice(NASTY, "set", owner=NASTY, reasons=[NASTY], client=NASTY, top_topic=NASTY),
        )
    ]
    harmless = page(_found([replace(ROGUE, recommendation=None)]))

    advice = {
        "by_action": {"set": 1},
        "totals": TOTALS,
        "lower_bounds": 0,
        "diff": [NASTY],
        "diff_left_out": 0,
    }
    text = page(replace(_found(nasty), tables=NASTY, advice=advice))

    assert "<img" not in text
    assert "alert(1)</script>" not in text
    assert text.count("<script") == harmless.count("<script")


def test_the_page_allows_only_its_own_script_and_no_network() -> None:
    head = page(_found())[:3_000]

    assert "default-src 'none'" in head
    assert head.count("sha256-") == 1
