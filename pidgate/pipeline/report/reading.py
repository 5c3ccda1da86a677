"""Everything in the report, read from the result tables: as many users as fit a page, worst first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.newest import newest_event
from pidgate.pipeline.report import over_time, rows, sums
from pidgate.pipeline.report.series import HOUR_MS
from pidgate.pipeline.report.source import Source, collected
from pidgate.pipeline.tables import Tables

USERS_IN_TABLE = 5_000
"""Further users in the searchable table, limited so that a phone can open the file."""
CLIENTS_PER_USER = 10
_CANDIDATES_PER_USER = 200
_PATTERNS_PER_USER = 20
_STEPS_OF_TEXT = 1_000


def found(tables: Tables, *, pages: int, made_ms: int, days: Days = EVER) -> rows.Found:
    """Read the report's data. `pages`: number of users with a page; `days`: of the charts and sums.

    Raises HistoryEmpty without any results.
    """
    source = Source(tables)
    has = source.names()
    if not has:
        raise HistoryEmpty(
            f"no results under {tables.path('results')}. Run `pidgate pipeline rates`, `offenders` and `recommend` "
            "with this --tables first; the report shows their results."
        )
    some_users = f.expr("users > 0 or found > 0")
    # Rates are per window of the newest quotas in force.
    window_ms = (newest_event(tables.events("config")) or {}).get("window_ms") or HOUR_MS
    names, left_out = _worst_users(source, max(pages, USERS_IN_TABLE))
    totals, lost = sums.totals(source, days), sums.lost(tables)
    return rows.Found(
        tables=tables.root,
        made_ms=made_ms,
        window_ms=window_ms,
        days=str(days).strip(),
        users=_users(source, names, pages),
        pages=min(pages, len(names)),
        users_left_out=left_out,
        has=has,
        totals=totals,
        times=over_time.times(source, totals, names[:pages], window_ms, days),
        held=over_time.held(source, days),
        lost=lost,
        clocks=sums.clocks(tables),
        dead_letters=None if lost is None else sums.dead_letters(tables),
        advice=sums.advice(source),
        accuracy=source.rows("detector_accuracy", at_most=100, where=some_users),
        confusion=source.rows("detector_confusion", at_most=1_000),
        blocks=over_time.blocks(source),
        kip=source.rows("failover_kip", at_most=_STEPS_OF_TEXT),
        kafka=over_time.heaps(source),
    )


def _worst_users(source: Source, at_most: int) -> tuple[list[str], int]:
    """Return users by ids of harmful patterns, then by new ids; and the number of further users."""
    names = ("offenders", "rates_users", "recommendations")
    parts = [part for part in (_ranked(source, name) for name in names) if part is not None]
    if not parts:
        return [], 0
    ranked = (
        reduce(lambda one, other: one.unionByName(other), parts)
        .groupBy("user")
        .agg(f.sum("burnt").alias("burnt"), f.max("new_ids").alias("new_ids"))
    )
    order = [f.desc("burnt"), f.desc("new_ids"), f.asc("user")]
    worst = [row["user"] for row in ranked.orderBy(*order).limit(at_most).collect()]
    return worst, (ranked.count() - len(worst) if len(worst) == at_most else 0)


def _ranked(source: Source, name: str) -> DataFrame | None:
    frame = source.frame(name)
    if frame is None:
        return None
    burnt = f.expr("if(harmful, new_ids, 0)") if "harmful" in frame.columns else f.lit(0)
    new_ids = f.col("new_ids") if "new_ids" in frame.columns else f.lit(0)
    return frame.where("user is not null").select(
        "user", burnt.cast("long").alias("burnt"), new_ids.cast("long").alias("new_ids")
    )


def _users(source: Source, names: Sequence[str], pages: int) -> list[rows.UserRow]:
    """Return the rows of these users, of which the first `pages` have a page."""
    if not names:
        return []
    mine, with_page = (f.col("user").isin(list(some)) for some in (names, names[:pages]))

    def by_user(name: str, each: int, where: Column = mine) -> Mapping[str, list[rows.Row]]:
        return _by_user(source.rows(name, at_most=each * len(names), where=where))

    rates, patterns = by_user("rates_users", 1), by_user("offenders", _PATTERNS_PER_USER)
    candidates = by_user("recommend_candidates", _CANDIDATES_PER_USER, with_page)
    # Both tables or none: a page shows them together.
    has_totals = source.frame("recommend_totals") is not None
    advice = by_user("recommendations", 1) if has_totals else {}
    clients = _by_user(_clients(source, with_page))
    return [
        rows.UserRow(
            user=name,
            rates=next(iter(rates.get(name, ())), None),
            patterns=[rows.typed(rows.PatternFound, one) for one in patterns.get(name, ())],
            recommendation=next(iter(advice.get(name, ())), None),
            clients=clients.get(name, ()),
            candidates=sorted(candidates.get(name, ()), key=lambda one: float(one["candidate_rate"])),
        )
        for name in names
    ]


def _clients(source: Source, mine: Column) -> list[rows.Row] | None:
    """Return the client ids with the most new ids, per user."""
    frame = source.frame("rates_clients")
    if frame is None:
        return None
    most_first = Window.partitionBy("user").orderBy(f.desc("new_ids"), "client_id")
    ranked = frame.where(mine).withColumn("place", f.row_number().over(most_first))
    return collected(ranked.where(f.col("place") <= CLIENTS_PER_USER).orderBy("user", "place"))


def _by_user(found: Iterable[rows.Row] | None) -> Mapping[str, list[rows.Row]]:
    grouped: dict[str, list[rows.Row]] = defaultdict(list)
    for row in found or ():
        grouped[row["user"]].append(row)
    return grouped
