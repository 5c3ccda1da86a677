"""Counts over time in equal steps: at most some hundred numbers per line, for any history length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from pidgate.pipeline.days import Days
from pidgate.pipeline.report.rows import HOUR_MS, Heaps, Row, Series, Span, Times, span_between
from pidgate.pipeline.tables import Tables

GREATEST = 6
"""Users with their own line in charts of all users; more colours are hard to tell apart."""
_BUMPS = 10
_STUDIES = 40
_NO_QUOTA_FIRST = (
    "coalesce(nullif(list_position(['none', 'in force', 'recommended'], quota), 0), 4), quota, "
    "scenario <> 'as it was', scenario"
)


def times(
    tables: Tables, totals: Row | None, pages: Sequence[str], window_ms: int, days: Days
) -> Times | None:
    """Return new ids and refusals of all users, and the windowed new ids of each user with a page."""
    if totals is None or not tables.exists("results", "rates_by_time"):
        return None
    span, of_days = span_between(totals["first_ms"], totals["last_ms"]), days.during("start_ms")
    mine = f"unit = '{span.unit}' and {of_days}"
    refusals = f"select 'refusals' as name, {_step(span, 'start_ms')}, sum(refusals)::bigint as n from found"
    lines = _lines(tables, "rates_by_time", span, f"{refusals} where {mine} group by all")
    return Times(
        span=span,
        by_user=_greatest_first(tables, "rates_by_time", span, "start_ms", "sum(new_ids)::bigint", mine),
        refusals=lines.get("refusals", Series("refusals", span.dense({}))),
        within_window=_within_window(tables, span, pages, window_ms, of_days),
        is_running=window_ms % span.step_ms == 0,
    )


def _within_window(
    tables: Tables, span: Span, users: Sequence[str], window_ms: int, of_days: str
) -> Mapping[str | None, Series]:
    """Return per step the new ids of the window ending with it; above an hour, of its busiest hour."""
    # Only steps that divide the window add up to it.
    runs = window_ms % span.step_ms == 0
    unit = span.unit if runs else min(span.unit, "hour", key=("minute", "hour", "day").index)
    most = f'select "user" as name, {_step(span, "start_ms")}, max(new_ids) as n from found'
    mine = f"unit = '{unit}' and {of_days} and \"user\" in (select unnest($users::varchar[]))"
    found = _lines(tables, "rates_by_time", span, f"{most} where {mine} group by all", users=list(users))
    if not runs:
        return found
    steps = window_ms // span.step_ms
    return {user: Series(user, _running(line.values, steps)) for user, line in found.items()}


def held(tables: Tables, days: Days) -> Row | None:
    """Return ids and states held over all users; for steps above an hour their fullest hour."""
    of_days = days.during("hour_ms")
    sums = tables.known(
        "held_by_hour",
        f"""
        with by_hour as (
            select hour_ms, sum(ids_held)::bigint as ids, sum(states_held)::bigint as states
            from found where {of_days} group by all
        )
        select min(hour_ms) as first_ms, max(hour_ms) as last_ms, max(ids) as most_ids, max(states) as most_states,
            -max({{'ids': ids, 'minus': -hour_ms}}).minus as most_at_ms
        from by_hour
        """,
    )
    if sums is None or sums[0]["first_ms"] is None:
        return None
    row = sums[0]
    span = span_between(row.pop("first_ms"), row.pop("last_ms"), finest_ms=HOUR_MS)
    in_step = f"sum(ids_held) / {span.step_ms // HOUR_MS}"
    by_user = _greatest_first(tables, "held_by_hour", span, "hour_ms", in_step, of_days)
    return {**row, "span": span, "by_user": by_user}


def blocks(tables: Tables) -> Row | None:
    every = tables.known(
        "ids_blocks", "select count(*) as blocks, coalesce(sum(ids_seen), 0)::bigint as ids_seen from found"
    )
    ends = tables.known(
        "ids_by_hour",
        "select min(hour_ms) as first_ms, max(hour_ms) as last_ms, sum(ids_in_blocks)::bigint as in_blocks from found",
    )
    if not every or not ends or ends[0]["first_ms"] is None:
        return None
    span = span_between(ends[0]["first_ms"], ends[0]["last_ms"], finest_ms=HOUR_MS)
    of_nodes = f"select node_id::varchar as name, {_step(span, 'hour_ms')}, sum(blocks)::bigint as n"
    lines = _by_broker(_lines(tables, "ids_by_hour", span, f"{of_nodes} from found group by all"))
    together = [sum(values) for values in zip(*(line.values for line in lines), strict=True)]
    busiest = max(range(span.steps), key=together.__getitem__)
    counts = "count(*) filter (bumps > 0) as bumped, count(*) filter (exhausted) as exhausted"
    most = f"where bumps > 0 or exhausted order by bumps desc, producer_id limit {_BUMPS}"
    return {
        **every[0],
        **(tables.known("ids_epochs", f"select {counts} from found") or [{"bumped": 0, "exhausted": 0}])[0],
        "span": span,
        "by_broker": [Series(f"broker {one.name}" if one.name else "unknown", one.values) for one in lines],
        "in_blocks": ends[0]["in_blocks"],
        "busiest_ms": span.start_ms + busiest * span.step_ms,
        "busiest_blocks": int(together[busiest]),
        "most_bumps": tables.known("ids_epochs", f"from found {most}") or [],
    }


def heaps(tables: Tables) -> list[Heaps] | None:
    studies = tables.known("failover_summary", f"from found order by {_NO_QUOTA_FIRST} limit {_STUDIES}")
    ends = tables.known(
        "failover_kafka", "select min(hour_ms) as first_ms, max(hour_ms) as last_ms from found"
    )
    if ends is None or studies is None:
        return None
    if ends[0]["first_ms"] is None:
        return []
    span = span_between(**ends[0], finest_ms=HOUR_MS)
    of_study: dict[tuple[str, str], list[Row]] = defaultdict(list)
    most = f"{_step(span, 'hour_ms')}, max(heap_bytes) as n, min(hour_ms) filter (dead) as died_ms"
    by_step = f"select quota, scenario, broker, broker::varchar as name, {most} from found group by all order by step"
    for row in tables.known("failover_kafka", by_step) or ():
        of_study[row["quota"], row["scenario"]].append(row)
    found = []
    for study in studies:
        died: dict[int, int] = {}
        for step in (rows := of_study[study["quota"], study["scenario"]]):
            if step["died_ms"] is not None and step["broker"] in study["brokers_dead"]:
                died.setdefault(step["broker"], step["died_ms"])
        found.append(Heaps(study, span, _by_broker(_dense(span, rows)), died))
    return found


# Steps


def _running(values: Sequence[float], steps: int) -> list[float]:
    """Return the sum of each value and those before it, `steps` in total."""
    sums = [0, *accumulate(values)]
    return [sums[n] - sums[max(0, n - steps)] for n in range(1, len(sums))]


def _step(span: Span, column: str) -> str:
    """Return the start of a time's step in `span`, in SQL. Steps of several days count from the span's start."""
    return f"{column} - ({column} - {span.start_ms}) % {span.step_ms} as step"


def _greatest_first(tables: Tables, name: str, span: Span, at: str, amount: str, where: str) -> list[Series]:
    """Return a line for each of the largest users, and one without a name for the rest."""
    largest = f'select "user", {amount} as n from found where {where} group by all order by n desc, "user"'
    greatest = [row["user"] for row in tables.known(name, f"{largest} limit {GREATEST}") or ()]
    user = 'if("user" in (select unnest($users::varchar[])), "user", null) as name'
    by_step = f"select {user}, {_step(span, at)}, {amount} as n from found where {where} group by all"
    lines = _lines(tables, name, span, by_step, users=greatest)
    return [lines[user] for user in (*greatest, None) if user in lines]


def _lines(tables: Tables, name: str, span: Span, sql: str, **values: list[str]) -> dict[str | None, Series]:
    """Return a line for each name in a query for name, step and n."""
    return _dense(span, tables.known(name, sql, **values) or ())


def _dense(span: Span, rows: Iterable[Row]) -> dict[str | None, Series]:
    counts: dict[str | None, dict[int, float]] = defaultdict(dict)
    for row in rows:
        counts[row["name"]][row["step"]] = row["n"]
    return {one: Series(one, span.dense(values)) for one, values in counts.items()}


def _by_broker(lines: Mapping[str | None, Series]) -> list[Series]:
    """Return the lines of brokers in id order; the unknown broker (None) comes first."""
    return [lines[name] for name in sorted(lines, key=lambda name: -1 if name is None else int(name))]
