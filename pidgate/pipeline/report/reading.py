"""Everything in the report, read from the result tables: as many users as fit a page, worst first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.in_force import newest_event
from pidgate.pipeline.report import over_time, rows, sums
from pidgate.pipeline.report.series import HOUR_MS
from pidgate.pipeline.report.source import Source
from pidgate.pipeline.tables import Tables

USERS_IN_TABLE = 5_000
"""Further users in the searchable table, limited so that a phone can open the file."""
CLIENTS_PER_USER = 10
_CANDIDATES_PER_USER = 200
_PATTERNS_PER_USER = 20


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
    # Rates are per window of the newest quotas in force.
    window_ms = (newest_event(tables, "config") or {}).get("window_ms") or HOUR_MS
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
        accuracy=source.rows("detector_accuracy", "from found where users > 0 or found > 0 limit 100"),
        confusion=source.rows("detector_confusion", "from found limit 1_000"),
        blocks=over_time.blocks(source),
        kip=source.rows("failover_kip", "from found limit 1_000"),
        kafka=over_time.heaps(source),
    )


_RANKED = {
    "offenders": "sum(if(harmful, new_ids, 0))::bigint as burnt, max(new_ids) as new_ids",
    "rates_users": "0 as burnt, max(new_ids) as new_ids",
    "recommendations": "0 as burnt, 0 as new_ids",
}


def _worst_users(source: Source, at_most: int) -> tuple[list[str], int]:
    """Return users by ids of harmful patterns, then by new ids; and the number of further users."""
    burnt: Counter[str] = Counter()
    new_ids: dict[str, int] = {}
    for name, columns in _RANKED.items():
        of_users = f'select "user", {columns} from found where "user" is not null group by all'
        for row in source.rows(name, of_users) or ():
            burnt[row["user"]] += row["burnt"]
            new_ids[row["user"]] = max(row["new_ids"], new_ids.get(row["user"], 0))
    worst = sorted(new_ids, key=lambda user: (-burnt[user], -new_ids[user], user))
    return worst[:at_most], max(0, len(worst) - at_most)


def _users(source: Source, names: Sequence[str], pages: int) -> list[rows.UserRow]:
    """Return the rows of these users, of which the first `pages` have a page."""
    if not names:
        return []

    def by_user(
        name: str, each: int, users: Sequence[str] = names, order: str = ""
    ) -> Mapping[str, list[rows.Row]]:
        """Return at most so many rows of each user."""
        place = f'row_number() over (partition by "user" {order})'
        mine = (
            f'from found where "user" in (select unnest($users::varchar[])) qualify {place} <= {each} {order}'
        )
        grouped: dict[str, list[rows.Row]] = defaultdict(list)
        for row in source.rows(name, mine, users=list(users)) or ():
            grouped[row["user"]].append(row)
        return grouped

    with_page = names[:pages]
    rates, patterns = by_user("rates_users", 1), by_user("offenders", _PATTERNS_PER_USER)
    candidates = by_user("recommend_candidates", _CANDIDATES_PER_USER, with_page, "order by candidate_rate")
    # Both tables or none: a page shows them together.
    advice = by_user("recommendations", 1) if source.rows("recommend_totals") is not None else {}
    clients = by_user("rates_clients", CLIENTS_PER_USER, with_page, "order by new_ids desc, client_id")
    return [
        rows.UserRow(
            user=name,
            rates=next(iter(rates.get(name, ())), None),
            patterns=[rows.typed(rows.PatternFound, one) for one in patterns.get(name, ())],
            recommendation=next(iter(advice.get(name, ())), None),
            clients=clients.get(name, ()),
            candidates=candidates.get(name, ()),
        )
        for name in names
    ]
