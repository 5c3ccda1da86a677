"""The report's parts that need neither Spark nor a browser: words, markup, time, findings, sections."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from pidgate.findings.patterns import PATTERN_WORDS, Pattern
from pidgate.pipeline.report import rows
from pidgate.pipeline.report.charts import candidates, line_with_limit, stacked
from pidgate.pipeline.report.findings import Weight, findings, summary
from pidgate.pipeline.report.markup import environment
from pidgate.pipeline.report.page import page
from pidgate.pipeline.report.rows import (
    Advice,
    Candidate,
    Found,
    PatternFound,
    Recommendation,
    Series,
    Totals,
    UserRow,
)
from pidgate.pipeline.report.series import DAY_MS, HOUR_MS, MINUTE_MS, Span, running, span_between
from pidgate.pipeline.report.source import JOB_OF
from pidgate.pipeline.report.words import (
    count,
    duration,
    evidence,
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
        (count(12.5), "12.5"),
        (count(0.25), "0.25"),
        (count(None), "-"),
        (counted(1, "user"), "1 user"),
        (counted(2_000, "user"), "2,000 users"),
        (no(0, "healthy id"), "no healthy id"),
        (share(0.995), "99.5 %"),
        (share(0.99957), "99.95 %"),
        (share(0.999999), "99.99 %"),
        (share(1.0), "100 %"),
        (share(0.00084), "0.084 %"),
        (share(0.0), "0 %"),
        (duration(850), "850 ms"),
        (duration(4_200), "4.2 s"),
        (duration(2 * HOUR_MS + 5 * MINUTE_MS), "2.1 h"),
        (duration(30 * DAY_MS - 1), "30 d"),
        (size(52 << 20), "54.5 MB"),
        (size(850), "850 bytes"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (listed(["a", "b", "c", "d"], 2), "a, b and 2 more"),
        (listed([]), "nobody"),
    ],
)
def test_numbers_as_people_read_them(said: str, expected: str) -> None:
    assert said == expected


def test_every_pattern_has_words_and_what_harms_a_remedy() -> None:
    assert set(PATTERN_WORDS) == set(Pattern)
    assert all(words.remedy for words in PATTERN_WORDS.values())


def test_evidence_is_put_in_units() -> None:
    assert evidence("interval_ms", "58000") == ("interval", "58 s")
    assert evidence("new_ids", "160000") == ("new ids", "160,000")
    assert evidence("one_request", "0.9871") == ("one request", "0.987")
    assert evidence("error_code", "OUT_OF_ORDER") == ("error code", "OUT_OF_ORDER")


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


def test_a_word_that_the_page_does_not_know_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="nme"):
        _made("{{ nme }}", name="x")


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


def test_counts_are_laid_on_their_steps() -> None:
    span = Span(10 * HOUR_MS, HOUR_MS, 4)

    assert span.dense({11 * HOUR_MS: 5, 13 * HOUR_MS: 2}) == [0, 5, 0, 2]


def test_running_sums_forget_what_is_older_than_the_window() -> None:
    assert running([1, 2, 3, 4], 2) == [1, 3, 5, 7]
    assert running([1, 2], 60) == [1, 3]


def test_the_recommended_rate_is_a_line_that_stays_in_sight() -> None:
    chart = line_with_limit(Span(0, HOUR_MS, 2), Series("u", [3, 5]), "new ids", 40.0)

    assert chart["layout"]["shapes"][0]["y0"] == 40
    assert chart["layout"]["yaxis"]["range"][1] > 40


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


def test_the_summary_counts_what_is_burnt() -> None:
    assert "1 of them burns ids: 81 % of all new ids" in summary(_found([ROGUE, QUIET]))


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


def test_what_holding_a_rogue_costs_is_drawn_for_each_rate() -> None:
    """A rate's days come apart in the table; drawn is their sum."""
    tried = [
        Candidate("mallory", rate, period, int(40 - rate), int(5 * rate), int(200 - 5 * rate), 9_000)
        for rate in (10.0, 40.0)
        for period in ("train", "test")
    ]
    chart, title, caption = candidates(tried, 40.0)

    (line,) = chart["data"]
    assert (line["x"], line["y"], line["text"]) == ([60, 0], [300, 0], ["10", "40"])
    assert title == "Cost of holding it"
    assert "400 harmful ids" in caption
    healthy, title, _ = candidates([replace(one, rogue_admitted=0, rogue_refused=0) for one in tried], 40.0)
    assert (healthy["data"][0]["x"], healthy["data"][0]["y"]) == ([10.0, 40.0], [60, 0])
    assert title == "Outcomes of other rates"


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


def test_where_no_rate_helps_the_page_says_what_would() -> None:
    tried = [
        Candidate("mallory", rate, period, 2, int(rate), 9, 60)
        for rate in (1.0, 9.0)
        for period in ("train", "test")
    ]
    advice = replace(_advice("mallory", "no_rate", None), reasons=["no rate separates them"], remedies=HELP)
    users = [replace(ROGUE, recommendation=advice, candidates=tried), replace(QUIET, recommendation=None)]
    of_all = Advice({"no_rate": 1}, 0, 5, 50, 50, 0, 0, 0, ["+ a line"], 0)

    text = page(_found(users, advice=of_all))

    section = text[text.index("Where no rate helps") :]
    assert "<td>no rate separates them.</td>" in section
    assert "<td>fix the client: share one producer. give client etl a principal of its own. </td>" in section
    assert "No quota should change." in text
    assert "Cost of holding it" in text
    assert "A point per rate: how many of 36 harmful ids" in text


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


def test_markup_made_elsewhere_is_trusted_only_as_markup() -> None:
    assert _made("<p>{{ text }}</p>", text=Markup("<b>x</b>")) == "<p><b>x</b></p>"
    assert _made("<p>{{ text }}</p>", text="<b>x</b>") == "<p>&lt;b&gt;x&lt;/b&gt;</p>"
