"""Everything in the report, read from the result tables: as many users as fit a page, worst first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
from jinja2 import UndefinedError
from pyarrow import ArrowInvalid

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import HistoryEmpty, TableUnreadable
from pidgate.pipeline.in_force import newest_event
from pidgate.pipeline.ingest.clocks import Doubts, doubts
from pidgate.pipeline.report import over_time
from pidgate.pipeline.report.rows import HOUR_MS, JOB_OF, Found, Row, UserRow
from pidgate.pipeline.tables import Rows, Tables

USERS_IN_TABLE = 5_000
"""Further users in the searchable table, limited so that a phone can open the file."""
CLIENTS_PER_USER = 10
_CANDIDATES_PER_USER = 200
_PATTERNS_PER_USER = 20
_REASONS = 50
_DIFF_LINES = 1_000


def found(tables: Tables, *, pages: int, made_ms: int, days: Days = EVER) -> Found:
    """Read the report's data. `pages`: number of users with a page; `days`: of the charts and sums.

    Raises HistoryEmpty without any results.
    """
    has = frozenset(name for name in JOB_OF if tables.exists("results", name))
    if not has:
        raise HistoryEmpty(
            f"no results under {tables.path('results')}. Run `pidgate pipeline rates`, `offenders` and `recommend` "
            "with this --tables first; the report shows their results."
        )
    # Rates are per window of the newest quotas in force.
    window_ms = (newest_event(tables, "config") or {}).get("window_ms") or HOUR_MS
    names, left_out = _worst_users(tables, max(pages, USERS_IN_TABLE))
    totals = _totals(tables, days)
    lost: Mapping[str, int] | None = None
    dead_letters: Mapping[str, int] | None = None
    if tables.exists("gaps"):
        # Events were ingested from a topic.
        lost = _counts(tables, "gaps", "gateway_id", "sum(missing)")
        dead_letters = _counts(tables, "dead_letters", "reason") if tables.exists("dead_letters") else {}
    return Found(
        tables=tables.root,
        made_ms=made_ms,
        window_ms=window_ms,
        days=str(days).strip(),
        users=_users(tables, names, pages),
        pages=min(pages, len(names)),
        users_left_out=left_out,
        has=has,
        totals=totals,
        times=over_time.times(tables, totals, names[:pages], window_ms, days),
        held=over_time.held(tables, days),
        lost=lost,
        clocks=doubts(tables.files.dataset("clocks")) if tables.exists("clocks") else Doubts(),
        dead_letters=dead_letters,
        advice=_advice(tables),
        accuracy=tables.known("detector_accuracy", "from found where users > 0 or found > 0 limit 100"),
        confusion=tables.known("detector_confusion", "from found limit 1_000"),
        blocks=over_time.blocks(tables),
        kip=tables.known("failover_kip", "from found limit 1_000"),
        kafka=over_time.heaps(tables),
    )


_RANKED = {
    "offenders": "sum(if(harmful, new_ids, 0))::bigint as burnt, max(new_ids) as new_ids",
    "rates_users": "0 as burnt, max(new_ids) as new_ids",
    "recommendations": "0 as burnt, 0 as new_ids",
}


def _worst_users(tables: Tables, at_most: int) -> tuple[list[str], int]:
    """Return users by ids of harmful patterns, then by new ids; and the number of further users."""
    burnt: Counter[str] = Counter()
    new_ids: dict[str, int] = {}
    for name, columns in _RANKED.items():
        of_users = f'select "user", {columns} from found where "user" is not null group by all'
        for row in tables.known(name, of_users) or ():
            burnt[row["user"]] += row["burnt"]
            new_ids[row["user"]] = max(row["new_ids"], new_ids.get(row["user"], 0))
    worst = sorted(new_ids, key=lambda user: (-burnt[user], -new_ids[user], user))
    return worst[:at_most], max(0, len(worst) - at_most)


def _users(tables: Tables, names: Sequence[str], pages: int) -> list[UserRow]:
    """Return the rows of these users, of which the first `pages` have a page."""
    if not names:
        return []

    def by_user(
        name: str, each: int, users: Sequence[str] = names, order: str = ""
    ) -> Mapping[str, list[Row]]:
        """Return at most so many rows of each user."""
        place = f'row_number() over (partition by "user" {order})'
        mine = (
            f'from found where "user" in (select unnest($users::varchar[])) qualify {place} <= {each} {order}'
        )
        grouped: dict[str, list[Row]] = defaultdict(list)
        for row in tables.known(name, mine, users=list(users)) or ():
            grouped[row["user"]].append(row)
        return grouped

    with_page = names[:pages]
    rates, patterns = by_user("rates_users", 1), by_user("offenders", _PATTERNS_PER_USER)
    candidates = by_user("recommend_candidates", _CANDIDATES_PER_USER, with_page, "order by candidate_rate")
    # Both tables or none: a page shows them together.
    advice = by_user("recommendations", 1) if tables.known("recommend_totals") is not None else {}
    clients = by_user("rates_clients", CLIENTS_PER_USER, with_page, "order by new_ids desc, client_id")
    return [
        UserRow(
            user=name,
            rates=next(iter(rates.get(name, ())), None),
            patterns=patterns.get(name, ()),
            recommendation=next(iter(advice.get(name, ())), None),
            clients=clients.get(name, ()),
            candidates=candidates.get(name, ()),
        )
        for name in names
    ]


# Sums over whole tables: a few rows each, for any number of users.


def _totals(tables: Tables, days: Days) -> Row | None:
    """Return the sums over all users; of some days only those that are known by day."""

    def sums(names: str) -> str:
        return ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in names.split())

    if days == EVER:
        name, where = "rates_users", "true"
        what = f"min(first_ms) as first_ms, max(last_ms) as last_ms, {sums('ids refused_ids gave_up')}"
    else:
        name, where = "rates_by_time", f"unit = 'day' and {days.during('start_ms')}"
        what = (
            "min(start_ms) as first_ms, max(start_ms) + 86_399_999 as last_ms, null as ids, null as refused_ids, "
            "null as gave_up"
        )
    of_all = (
        f'select count(distinct "user") as users, {what}, {sums("new_ids refusals")} from found where {where}'
    )
    rows = tables.known(name, of_all)
    return rows[0] if rows and rows[0]["users"] else None


def _advice(tables: Tables) -> Row | None:
    totals, lower_bounds = tables.known("recommend_totals"), "lower_bound and action <> 'none'"
    counted = tables.known("recommendations", f"select count(*) as n from found where {lower_bounds}")
    if not totals or counted is None:
        return None
    diff, left_out = _diff(tables)
    return {
        "by_action": _counts(tables, "results/recommendations", "action"),
        "totals": totals[0],
        "lower_bounds": counted[0]["n"],
        "diff": diff,
        "diff_left_out": left_out,
    }


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


@contextmanager
def whole(tables: Tables) -> Iterator[None]:
    """Read and show tables in this block.

    Raises TableUnreadable if one is incomplete, of another version, or was replaced during the block.
    """
    folder = tables.path("results")
    try:
        yield
    except (UndefinedError, KeyError, duckdb.BinderException) as error:
        raise TableUnreadable(
            f"a table under {folder} was written by another version: run the jobs with this --tables again "
            f"({str(error).splitlines()[0]})."
        ) from error
    except (OSError, ArrowInvalid, duckdb.Error) as error:
        raise TableUnreadable(
            f"a table under {folder} is incomplete, or was replaced while it was read. If a job is running "
            "there, wait for it; otherwise rerun the interrupted job. Then rerun the report."
        ) from error
