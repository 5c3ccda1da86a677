"""The recommended quotas: what the replay says of them together, who should get which, and the diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report.markup import Html, tag
from pidgate.pipeline.report.overview import pages_of, user_link
from pidgate.pipeline.report.parts import Column, not_run, section, table, tiles
from pidgate.pipeline.report.rows import Advice, Found, Recommendation, UserRow
from pidgate.pipeline.report.words import NOTHING, count, no, rate
from pidgate.units import counted

_MOST = 200
_CHANGING = ("set", "block")
_ACTIONS = {"set": "set a rate", "block": "block", "keep": "keep", "none": "too little history"}


class _Change(NamedTuple):
    user: UserRow
    advice: Recommendation


def advice_section(found: Found) -> Html:
    advice = found.advice
    if advice is None:
        return section("recommendations", "Recommended quotas", not_run("recommend"))
    changing = [
        _Change(user, user.recommendation)
        for user in found.users
        if user.recommendation and user.recommendation.action in _CHANGING
    ]
    rows = changing[:_MOST]
    more = max(0, sum(advice.by_action.get(one, 0) for one in _CHANGING) - len(rows))
    return section(
        "recommendations",
        "Recommended quotas",
        tag("p", _how(advice)),
        tiles(
            *(
                (_ACTIONS.get(action, action).capitalize(), count(users), "users")
                for action, users in advice.by_action.items()
            )
        ),
        table(_columns(pages_of(found)), rows, "Users whose quota should change")
        if rows
        else tag("p", "No quota should change.", class_="empty"),
        tag("p", f"{counted(more, 'more user')} in results/recommendations.", class_="note")
        if more
        else None,
        *_diff(advice),
    )


def _how(advice: Advice) -> str:
    """The recommended rates against the obvious way, the maximum of history."""
    if not advice.rogue_ids_test:
        return "No harmful pattern fell into the time kept back for judging, so nothing had to be held there."
    held = advice.rogue_ids_test - advice.rogue_ids_admitted_test
    naive = advice.rogue_ids_test - advice.naive_rogue_ids_admitted_test
    return (
        "Each user's history was replayed through the gateway's own quota code: rates were chosen on its first part "
        "and judged on the last, which the choice did not see. There the recommended rates hold "
        f"{count(held)} of {count(advice.rogue_ids_test)} harmful ids and refuse "
        f"{no(advice.healthy_refused_test, 'healthy id')}. The maximum of history as a quota would hold "
        f"{count(naive)}, and refuse {no(advice.naive_healthy_refused_test, 'healthy id')}."
    )


def _columns(pages: Mapping[str, int]) -> Sequence[Column[_Change]]:
    per_window, judged = "producer_ids_rate per window", "in the time kept back for judging"
    return (
        Column("User", lambda one: user_link(one.user.user, pages)),
        Column("Owner", lambda one: one.advice.owner or NOTHING),
        Column("Today", lambda one: rate(one.advice.current_rate), True, per_window),
        Column("Recommended", _recommended, True, per_window),
        Column("Because of", _patterns),
        Column("Healthy refused", lambda one: count(one.advice.healthy_refused_test), True, judged),
        Column("Harmful let in", lambda one: count(one.advice.rogue_ids_admitted_test), True, judged),
    )


def _recommended(one: _Change) -> str:
    return "blocked" if one.advice.action == "block" else count(one.advice.recommended_rate)


def _patterns(one: _Change) -> str:
    return ", ".join(pattern_words(found.pattern).name for found in one.user.harmful) or "steady history"


def _diff(advice: Advice) -> Sequence[Html]:
    if not advice.diff:
        return []
    lines = [tag("span", line + "\n", class_=_change(line)) for line in advice.diff]
    left_out = (
        f"{counted(advice.diff_left_out, 'line')} more in recommended/changes.diff."
        if advice.diff_left_out
        else None
    )
    return [
        tag("h3", "The changes"),
        tag(
            "p",
            "recommended/quotas.yaml is a quotas file that the gateway loads as it is. It enforces nothing by itself: "
            "that is typed by whoever takes it over.",
        ),
        tag("pre", *lines, class_="diff", tabindex=0, role="region", aria_label="Changes to the quotas"),
        tag("p", left_out, class_="note") if left_out else Html(""),
    ]


def _change(line: str) -> str | None:
    if line.startswith(("+++", "---", "@@")):
        return "where"
    return {"+": "added", "-": "removed"}.get(line[:1])
