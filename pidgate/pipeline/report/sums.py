"""Sums over whole tables: a few rows each, for any number of users."""

from __future__ import annotations

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.ingest.clocks import Doubts, doubts
from pidgate.pipeline.report.rows import Advice, Totals
from pidgate.pipeline.report.source import Source
from pidgate.pipeline.tables import Rows, Tables

_REASONS = 50
_DIFF_LINES = 1_000


def totals(source: Source, days: Days) -> Totals | None:
    """Return the sums over all users; of some days only those that are known by day."""
    name, times, more = (
        "rates_users",
        "min(first_ms) as first_ms, max(last_ms) as last_ms",
        "ids refused_ids gave_up",
    )
    condition = "true"
    if days != EVER:
        name, times, more = (
            "rates_by_time",
            "min(start_ms) as first_ms, max(start_ms) + 86_399_999 as last_ms",
            "",
        )
        condition = f"unit = 'day' and {days.during('start_ms')}"
    sums = ", ".join(
        f"coalesce(sum({one}), 0)::bigint as {one}" for one in f"new_ids refusals {more}".split()
    )
    rows = source.rows(
        name, f'select count(distinct "user") as users, {times}, {sums} from found where {condition}'
    )
    return Totals(**rows[0]) if rows and rows[0]["users"] else None


def lost(tables: Tables) -> dict[str, int] | None:
    """Return missing events by gateway; None if events were not ingested from a topic."""
    return _counts(tables, "gaps", "gateway_id", "sum(missing)") if tables.exists("gaps") else None


def dead_letters(tables: Tables) -> dict[str, int]:
    """Return rejected events by reason."""
    return _counts(tables, "dead_letters", "reason") if tables.exists("dead_letters") else {}


def clocks(tables: Tables) -> Doubts:
    """Return the doubts about gateways' clocks; none if events were not ingested from a topic."""
    return doubts(tables.files.dataset("clocks")) if tables.exists("clocks") else Doubts()


def advice(source: Source) -> Advice | None:
    totals, lower_bounds = source.rows("recommend_totals"), "lower_bound and action <> 'none'"
    counted = source.rows("recommendations", f"select count(*) as n from found where {lower_bounds}")
    if not totals or counted is None:
        return None
    diff, left_out = _diff(source.tables)
    return Advice(
        by_action=_counts(source.tables, "results/recommendations", "action"),
        totals=totals[0],
        lower_bounds=counted[0]["n"],
        diff=diff,
        diff_left_out=left_out,
    )


def _diff(tables: Tables) -> tuple[list[str], int]:
    """Return the lines of recommended/changes.diff, and the number of further lines."""
    lines = (tables.text("recommended", "changes.diff") or "").splitlines()
    return lines[:_DIFF_LINES], max(0, len(lines) - _DIFF_LINES)


def _counts(tables: Tables, folder: str, column: str, amount: str = "count(*)") -> dict[str, int]:
    """Return the largest counts first; the rest is summed up as "other"."""
    rows: Rows = tables.query_at(
        folder,
        f"select coalesce({column}, '') as name, {amount}::bigint as amount from found "
        "group by all order by amount desc, name",
    )
    counts = {row["name"]: row["amount"] for row in rows[:_REASONS]}
    if others := rows[_REASONS:]:
        counts["other"] = sum(row["amount"] for row in others)
    return counts
