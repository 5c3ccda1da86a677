"""Every sentence about a recommendation, from one row of `recommendations` alone. Pure.

A number in a sentence is a column of the row, or the row of `recommend_totals`. A test takes each sentence apart and
compares it with both tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pidgate.findings.patterns import Pattern, pattern_words
from pidgate.pipeline.recommend.chosen import DEPLOYMENTS, LEAST_INSTANCES, Action, Lack
from pidgate.units import about_duration, counted, listed, number, show_size

Row = Mapping[str, Any]

ONLY_OBSERVED: Final = "only observed: it refuses nothing until it is enforced (pidgate promote)"
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NAMES: Final = {"now": "the rate in force", "cap": "the cap for now", "mended": "the rate after mending"}
_AT_THE_SOURCE: Final = frozenset(
    (Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_ERROR, Pattern.PRODUCER_PER_BATCH)
)
"""Patterns that open producers without a transactional id; their InitProducerId can be refused."""


def reasons(row: Row, totals: Row) -> list[str]:
    """Return the sentences about a user, most important first."""
    if row["action"] == Action.NONE:
        return [lacking(row, totals)]
    rogue = [_rogue(row)] if row["rogue_ids"] else []
    return [
        *_observed(row),
        *rogue,
        *_rates(row),
        *_costs(row),
        *_states(row, totals),
        *_judged(row),
        *_cautions(row),
    ]


def advice(row: Row) -> list[str]:
    """Return the rates and their price alone, or why there are none."""
    return list(row["reasons"][:1]) if row["action"] == Action.NONE else [*_rates(row), *_costs(row)]


def lacking(row: Row, totals: Row) -> str:
    """Return why no rate is recommended."""
    few = f"too little evidence: {counted(row['ids'], 'new id')}"
    match row["lacks"]:
        case Lack.EXEMPT:
            return "exempt: counted, never refused"
        case Lack.HISTORY:
            return (
                f"too little evidence: {about_duration(row['history_ms'])} of history with data; a rate needs "
                f"{about_duration(totals['least_history_ms'])} (--least-history)"
            )
        case Lack.DAYS:
            return (
                f"too little evidence: data on {number(row['days'])} of {counted(totals['history_days'], 'day')}; a "
                f"rate needs {number(totals['least_days'])} (--least-history)"
            )
        case Lack.IDS if row["ids"]:
            return f"{few}; a rate needs {number(totals['least_ids'])} (--least-ids)"
        case Lack.IDS:
            return "no new ids in these days"
    return (
        f"{counted(row['healthy_refusals'], 'refusal')} of healthy ids kept an unknown number of producers away: not "
        "enough to lower a rate or to set the first one; observe it for a week (mode: observe), then run again with "
        "--since"
    )


def _observed(row: Row) -> Iterator[str]:
    if row["action"] == Action.KEEP and row["mode"] != "enforce":
        yield ONLY_OBSERVED


def _rogue(row: Row) -> str:
    found = ", ".join(pattern_words(pattern).name.lower() for pattern in row["patterns"]) or "rogue"
    clients = f" ({listed(list(row['rogues']), 3)})" if row["rogues"] else ""
    return f"{found}{clients}: {number(row['rogue_ids'])} of {counted(row['ids'], 'new id')} are its own"


def _rates(row: Row) -> Iterator[str]:
    margin = f"headroom {row['headroom']:.3g}, growth {row['growth']:.3g}"
    if row["rogue_ids"]:
        yield (
            f"cap for now: {number(row['cap_rate'])}; the least rate that refuses none of its ids as they came is "
            f"{number(row['least_rate'])} ({margin})"
        )
    healthy = row["ids"] - row["rogue_ids"]
    alone = (
        f"the least rate that refuses none of its {counted(healthy, 'healthy id')} is "
        f"{number(row['least_healthy_rate'])} ({margin})"
        if healthy
        else "it has no healthy id"
    )
    instances = max(row["instances"], LEAST_INSTANCES)
    named = "after mending" if row["rogue_ids"] else "cap"
    yield (
        f"{named}: {number(row['mended_rate'])}; {alone}, and a deployment of {number(instances)} instances with its "
        f"rollback brings {number(DEPLOYMENTS * instances)}"
    )


def _costs(row: Row) -> Iterator[str]:
    rates = {"now": row["current_rate"], "cap": row["cap_rate"], "mended": row["mended_rate"]}
    told = set()
    for name, rate in rates.items():
        if row[name] is not None and rate not in told:
            told.add(rate)
            yield cost(name, rate, row[name], row)


def cost(name: str, rate: float, of: Row, row: Row) -> str:
    """Return what a rate would have refused in these days."""
    what = f"{NAMES[name]} ({number(rate)}) would have refused"
    if not of["refused_ids"]:
        return f"{what} none of {counted(row['ids'], 'id')}"
    return (
        f"{what} {number(of['refused_ids'])} of {counted(row['ids'], 'id')} ({number(of['refused_healthy_ids'])} "
        f"healthy), {number(of['refused_requests'])} of {counted(row['requests'], 'request')} and "
        f"{number(of['refused_records'])} of {counted(row['records'], 'record')}; the longest wait is "
        f"{about_duration(of['longest_wait_ms'])}"
    )


def _states(row: Row, totals: Row) -> Iterator[str]:
    for name in ("cap", "mended") if row["rogue_ids"] else ("cap",):
        states = row[f"{name}_states"]
        yield (
            f"{NAMES[name]} ({number(row[f'{name}_rate'])}) allows {counted(states, 'producer state')} on a broker"
            f"{in_heap(states, totals)}"
        )


def in_heap(states: int, totals: Row) -> str:
    """Return the share of a broker's heap that states take, where `--heap` is given."""
    fit, heap = totals["states_that_fit"], totals["heap_bytes"]
    return f", {100 * states / fit:.3g} % of the room in {show_size(heap)} of heap" if fit else ""


def _judged(row: Row) -> Iterator[str]:
    if row["judged_cap_rate"] is None:
        yield "not judged: its ids came in the held-out days only, or in none of them"
        return
    yield (
        f"judged on the held-out days: the cap learnt before them ({number(row['judged_cap_rate'])}) refuses "
        f"{number(row['judged_cap_refused'])} of {counted(row['judged_ids'], 'id')}, "
        f"{number(row['judged_cap_refused_healthy'])} of {counted(row['judged_healthy_ids'], 'healthy one')}"
    )


def _cautions(row: Row) -> Iterator[str]:
    if row["peak_weekday"] is not None:
        weeks = counted(row["peak_weeks"], "week")
        yield f"its fullest day is {WEEKDAYS[row['peak_weekday']]}, seen in {weeks}"
    if row["rogue_transactional_ids"]:
        yield (
            f"{number(row['rogue_transactional_ids'])} of its rogue ids are transactional, refused only with "
            "quotas.producer_ids.transactional: enforce"
        )
    if row["lower_bound"]:
        yield (
            f"a lower bound: {counted(row['healthy_refusals'], 'refusal')} of healthy ids kept an unknown number of "
            "producers away"
        )
    if row["action"] == Action.SET and row["source"] == "run_time":
        yield (
            f"set at run time by {row['set_by']}, which overrides the file until it is reset (pidgate quotas)"
        )


def remedies(row: Row) -> list[str]:
    """Return what helps against a rogue, cheapest first."""
    if not row["rogue_ids"] or row["action"] == Action.NONE:
        return []
    whom = listed(list(row["rogues"]), 3) or "the rogue"
    helps = [f"fix the client: {pattern_words(pattern).remedy}" for pattern in row["patterns"]]
    if row["rogue_ids"] < row["ids"]:
        helps.append(f"give {whom} a principal of its own: its quota then affects no other user")
    if row["rogue_transactional_ids"] or Pattern.RANDOM_TRANSACTIONAL_IDS in row["patterns"]:
        helps.append(
            "transactional_ids_rate limits new transactional ids at InitProducerId, before anything is sent: "
            "reused ids are free, generated ones are not"
        )
    if _AT_THE_SOURCE & set(row["patterns"]):
        helps.append(
            "quotas.producer_ids.refuse_init_producer_id: true gives no id to a user without tokens, so waiting "
            "clients burn none at any rate"
        )
    return helps


def overall(totals: Row) -> list[str]:
    """Return the sentences about all users, from the row of `recommend_totals`."""
    said = []
    if totals["default_rate"] is not None:
        said.append(
            f"default for users of tomorrow: {number(totals['default_rate'])}; enough for "
            f"{number(totals['default_covers'])} of {counted(totals['default_users'], 'healthy user')} of today, and "
            f"each allows {counted(totals['default_states'], 'producer state')} on a broker"
            f"{in_heap(totals['default_states'], totals)}"
        )
    allowed = totals["recommended_states"]
    said.append(
        f"all recommended rates together allow {counted(allowed, 'producer state')} on a broker"
        f"{in_heap(allowed, totals)}; {counted(totals['unlimited'], 'user')} without a rate come on top"
    )
    if not totals["heap_bytes"]:
        said.append(
            "the brokers' heap is not known: give it (--heap 6GiB) to see the share that the states take"
        )
    if totals["judged_healthy_ids"]:
        said.append(
            f"in the held-out days the caps learnt before them refuse {number(totals['judged_cap_refused_healthy'])} "
            f"of {counted(totals['judged_healthy_ids'], 'healthy id')}"
        )
    return said
