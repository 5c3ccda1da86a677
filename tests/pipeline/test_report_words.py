"""The report's parts that need neither Spark nor a browser: words, markup, time, findings, sections."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from markupsafe import Markup

from pidgate.findings.patterns import Pattern
from pidgate.pipeline.report import rows
from pidgate.pipeline.report.charts import stacked
from pidgate.pipeline.report.findings import Weight, findings, summary
from pidgate.pipeline.report.markup import environment
from pidgate.pipeline.report.page import page
from pidgate.pipeline.report.rows import (
    Found,
    PatternFound,
    Recommendation,
    Series,
    Totals,
    UserRow,
)
from pidgate.pipeline.report.series import DAY_MS, HOUR_MS, MINUTE_MS, Span, span_between
from pidgate.pipeline.report.source import JOB_OF
from pidgate.pipeline.report.words import (
    count,
    duration,
    listed,
    no,
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
        (no(0, "healthy id"), "no healthy id"),
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


def test_names_in_charts_are_text_for_plotly_too() -> None:
    chart = stacked(Span(0, HOUR_MS, 1), [Series("<a href='http://evil'>x</a>", [1])], "new ids")

    assert chart["data"][0]["name"] == "&lt;a href='http://evil'&gt;x&lt;/a&gt;"


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
    totals = Totals(2, 0, DAY_MS, 110, 100, 0, 0, 0)
    empty = Found(tables="t", made_ms=0, window_ms=HOUR_MS, has=has, totals=totals)
    return replace(empty, users=users, pages=len(users), **more)  # type: ignore[arg-type]


def _pattern(user: str, pattern: Pattern, ids: int, share_: float, *, harmful: bool) -> PatternFound:
    return PatternFound(user, pattern, harmful, ids, share_, "app", None, {}, f"{user} did it.")


def _advice(user: str, action: str, rate: float | None, mode: str = "enforce") -> Recommendation:
    return Recommendation(
        user=user,
        owner=None,
        current_rate=1_000.0,
        recommended_rate=rate,
        action=action,
        headroom=1.5,
        reasons=["1 h of history are too little"],
        remedies=[],
        judged_rate=18.0,
        healthy_refused_test=0,
        rogue_ids_admitted_test=5,
        rogue_ids_test=50,
        rogue_ids_admitted=8,
        rogue_ids=81,
        naive_rate=60.0,
        naive_rogue_ids_admitted_test=50,
        censored=False,
        mode=mode,
    )


ROGUE = UserRow(
    "mallory",
    patterns=[_pattern("mallory", Pattern.PRODUCER_PER_BATCH, 81, 0.9, harmful=True)],
    recommendation=_advice("mallory", "set", 20.0),
)
QUIET = UserRow("alice", patterns=[_pattern("alice", Pattern.CRON_JOB, 10, 1.0, harmful=False)])


def test_the_first_finding_names_the_rogue_why_and_what_to_do() -> None:
    first = findings(_found([ROGUE, QUIET]))[0]

    assert first.weight is Weight.BAD
    assert (
        first.headline
        == "mallory (app) opens a new producer for each batch: 81 new ids, 90 % of all it opened"
    )
    assert first.why == "mallory did it."
    assert "Open one producer when the process starts" in first.action
    assert "set producer_ids_rate to 20 per window (1,000 today)" in first.action
    assert "Replayed over all days, that holds 73 of 81 harmful ids." in first.action
    assert "the rate is 18: it holds 45 of 50 there and refuses no healthy one." in first.action
    assert first.user == "mallory"


@pytest.mark.parametrize(("mode", "holds"), [("enforce", True), ("observe", False)])
def test_a_quota_that_is_kept_is_not_said_to_hold_while_it_only_counts(mode: str, holds: bool) -> None:
    kept = replace(ROGUE, recommendation=_advice("mallory", "keep", 1_000.0, mode))

    action = findings(_found([kept]))[0].action
    assert "Keep its quota (1,000 today)" in action
    assert ("refuses nothing until it is enforced" in action) is not holds


def test_the_innocent_are_not_accused() -> None:
    found = findings(_found([QUIET]))

    assert [one.weight for one in found] == [Weight.GOOD]
    assert found[0].headline == "No user burns producer ids"
    assert "burn" not in summary(_found([QUIET]))


def test_one_user_with_two_harmful_patterns_is_not_counted_twice() -> None:
    both = replace(
        ROGUE, patterns=[*ROGUE.patterns, _pattern("mallory", Pattern.RESTART_LOOP, 9, 0.1, harmful=True)]
    )

    assert both.burnt_ids == 90
    assert "also restart loop" in findings(_found([both]))[0].headline


def test_a_user_without_a_name_can_be_accused() -> None:
    nobody = replace(ROGUE, user="", recommendation=_advice("", "none", None))

    assert findings(_found([nobody]))[0].headline.startswith("(no user name) (app) opens")
    action = findings(_found([nobody]))[0].action
    assert action.endswith("No quota is recommended: 1 h of history are too little.")


HELP = ["fix the client: share one producer", "give client etl a principal of its own"]


@pytest.mark.parametrize(("action", "rate"), [("no_rate", None), ("set", 120.0)])
def test_a_quota_that_holds_little_is_not_said_to_hold(action: str, rate: float | None) -> None:
    advice = replace(_advice("mallory", action, rate), remedies=HELP, rogue_ids_admitted=81)
    said = findings(_found([replace(ROGUE, recommendation=advice)]))[0].action

    assert "holds" not in said
    assert "What helps: (1) fix the client: share one producer. (2) give client etl a principal" in said
    assert ("set producer_ids_rate to 120" in said) == (action == "set")


# The page


def test_every_field_that_is_read_is_used() -> None:
    """Most are used by templates, into which vulture does not look."""
    folder = Path(rows.__file__).parent
    users = [path.read_text() for path in folder.rglob("*.*") if path.suffix in (".html", ".py")]
    shown = set(
        re.findall(r"(?<=\.)\w+|(?<=attribute=\")\w+|(?<=attr\(\")\w+|(?<=groupby\(\")\w+", "\n".join(users))
    )
    read = {field.name for row in vars(rows).values() if is_dataclass(row) for field in fields(row)}

    assert len(read) > 80
    assert read - shown == set()


def test_every_part_copes_with_what_was_not_run() -> None:
    text = page(Found(tables="t", made_ms=0, window_ms=HOUR_MS))

    for job in set(JOB_OF.values()):
        assert f"<code>pidgate pipeline {job}</code>" in text, job


def test_names_cannot_leave_their_place_in_the_page() -> None:
    nasty = [
        UserRow(
            NASTY,
            patterns=[PatternFound(NASTY, NASTY, True, 9, 1.0, NASTY, NASTY, {NASTY: NASTY}, NASTY)],
            recommendation=replace(_advice(NASTY, "set", 1.0), owner=NASTY, reasons=[NASTY]),
        )
    ]
    harmless = page(_found([replace(ROGUE, recommendation=None)]))

    text = page(replace(_found(nasty), tables=NASTY))

    assert "<img" not in text.replace(_plotly_of(text), "")
    assert "alert(1)</script>" not in text
    assert text.count("<script") == harmless.count("<script")


def _plotly_of(text: str) -> str:
    """The longest script: plotly's own code has such words in it."""
    return max(text.split("<script>"), key=len)


def test_the_page_allows_only_its_own_two_scripts_and_no_network() -> None:
    head = page(_found())[:3_000]

    assert "default-src 'none'" in head
    assert head.count("sha256-") == 2
