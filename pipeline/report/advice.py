"""The recommended quotas: what the replay says of them together, who should get which, and the diff."""

from __future__ import annotations

from collections.abc import Sequence

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report.findings import name_of
from pidgate.pipeline.report.markup import Content, Html, tag
from pidgate.pipeline.report.parts import Column, not_run, section, table, tiles
from pidgate.pipeline.report.rows import Advice, Found, UserRow
from pidgate.pipeline.report.words import NOTHING, count, no, rate
from pidgate.units import counted

_MOST = 200
_CHANGING = ("set", "block")
_ACTIONS = {"set": "set a rate", "block": "block", "keep": "keep", "none": "too little history"}
_COLUMNS = (
    Column("User"),
    Column("Owner"),
    Column("Today", True, "producer_ids_rate per window"),
    Column("Recommended", True, "producer_ids_rate per window"),
    Column("Because of"),
    Column("Healthy refused", True, "in the time kept back for judging"),
    Column("Harmful let in", True, "in the time kept back for judging"),
)


def advice_section(found: Found) -> Html:
    advice = found.advice
    if advice is None:
        return section("recommendations", "Recommended quotas", not_run("recommend"))
    changing = [
        (n, user)
        for n, user in enumerate(found.users)
        if user.recommendation and user.recommendation.action in _CHANGING
    ]
    rows = [_row(user, n if n < found.pages else None) for n, user in changing[:_MOST]]
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
        table(_COLUMNS, rows, "Users whose quota should change")
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


def _row(user: UserRow, page: int | None) -> list[Content]:
    advice = user.recommendation
    assert advice is not None
    name = name_of(user.user)
    patterns = [pattern_words(one.pattern).name for one in user.harmful] or ["steady history"]
    return [
        tag("a", name, href=f"#user-{page}") if page is not None else name,
        advice.owner or NOTHING,
        rate(advice.current_rate),
        "blocked" if advice.action == "block" else count(advice.recommended_rate),
        ", ".join(patterns),
        count(advice.healthy_refused_test),
        count(advice.rogue_ids_admitted_test),
    ]


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
