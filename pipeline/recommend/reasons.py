"""Reasons for a recommended rate, as sentences for the person who has to answer for it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f


def reasons() -> Column:
    """array<string>, of the columns that chosen.recommendations() has by then."""
    return f.array_compact(
        f.array(
            _nothing_to_go_by(),
            _need(),
            _restart(),
            _waits(),
            _in_force(),
            _rogue(),
            _not_held(),
            _judged(),
            _transactions(),
            _censored(),
            _run_time(),
        )
    )


def _rate(column: str) -> Column:
    """Write a rate: 43, 0.5."""
    return f.regexp_replace(f.format_string("%.3f", f.col(column)), r"\.?0+$", "")


def _is_set() -> Column:
    return f.col("action") == "set"


def _nothing_to_go_by() -> Column:
    none = f.col("action") == "none"
    return f.when(none & f.col("exempt"), "exempt: counted, never refused").when(
        none, "no new ids in the days that were learnt from"
    )


def _need() -> Column:
    text = f.format_string(
        "healthy producers brought at most %d new ids in a window; %s is the least rate tried that refuses none",
        f.col("healthy_peak"),
        _rate("least.rate"),
    )
    alone = f.format_string("no healthy producer was seen: %s is the least rate tried", _rate("pick.rate"))
    return f.when(_is_set() & (f.col("healthy_peak") > 0), text).when(_is_set(), alone)


def _in_force() -> Column:
    refuses = f.format_string(
        "the rate in force (%s) would have refused %d healthy ids",
        _rate("current_rate"),
        f.col("now.train.healthy_refused"),
    )
    lets_in = f.format_string(
        "the rate in force (%s) lets in %d of %d ids of rogue producers",
        _rate("current_rate"),
        f.col("now.train.rogue_admitted"),
        f.col("rogue_ids"),
    )
    return (
        f.when(_is_set() & f.col("current_rate").isNull(), "no rate is in force")
        .when(_is_set() & (f.col("now.train.healthy_refused") > 0), refuses)
        .when(_is_set() & (f.col("now.train.rogue_admitted") > 0), lets_in)
        .when(_is_set(), f.format_string("the rate in force (%s) is less", _rate("current_rate")))
    )


def _rogue() -> Column:
    judged = f.col("judged.test.rogue_admitted") + f.col("judged.test.rogue_refused")
    text = f.format_string(
        "%s: of %d ids of rogue producers in the judged days it lets in %d; the maximum of history (%d) lets in %d",
        f.coalesce(f.nullif(f.array_join("patterns", ", "), f.lit("")), f.lit("rogue")),
        judged,
        f.col("judged.test.rogue_admitted"),
        f.col("naive"),
        f.col("plain.test.rogue_admitted"),
    )
    return f.when((f.col("rogue_ids") > 0) & (f.col("action") != "none"), text)


def _not_held() -> Column:
    loose = f.col("judged.train.rogue_admitted") > 0.5 * f.col("rogue_ids")
    apart = "no rate holds the rogue and refuses no healthy id that comes while it runs: give it a user of its own"
    else_ = f.format_string(
        "; or set %s: the healthy would have waited up to %d s, and %d of %d rogue ids come in",
        _rate("holding.rate"),
        f.ceil(f.col("holding.train.longest_wait_ms") / 1000),
        f.col("holding.train.rogue_admitted"),
        f.col("rogue_ids"),
    )
    text = f.concat(f.lit(apart), f.when(f.col("holding").isNotNull(), else_).otherwise(""))
    slow = "the rogue is so slow that no rate tried holds it: look for its cause, not for a quota"
    text = f.when(f.col("healthy_peak") == 0, slow).otherwise(text)
    return f.when((f.col("rogue_ids") > 0) & loose & (f.col("action") != "none"), text)


def _waits() -> Column:
    text = f.format_string(
        "%d healthy ids of the days learnt from would have had to wait, the longest for %d s; none gives up",
        f.col("pick.train.healthy_refused"),
        f.ceil(f.col("pick.train.longest_wait_ms") / 1000),
    )
    return f.when(_is_set() & (f.col("pick.train.healthy_refused") > 0), text)


def _restart() -> Column:
    text = f.format_string(
        "%d ids were in use at the same time: a restart of all of them at once ", f.col("alive")
    )
    outcome = f.when(f.col("pick.rate") >= f.col("alive"), "fits").otherwise("would have to wait")
    return f.when(
        _is_set() & (f.col("alive") > f.greatest("healthy_peak", f.lit(1))), f.concat(text, outcome)
    )


def _judged() -> Column:
    refused = f.col("judged.test.healthy_refused")
    return f.when(
        refused > 0, f.format_string("in the judged days it would have made %d healthy ids wait", refused)
    )


def _transactions() -> Column:
    text = f.format_string(
        "%d of its rogue ids are of transactions, refused only with quotas.producer_ids.transactional: enforce",
        f.col("rogue_transactional_ids"),
    )
    return f.when(f.col("rogue_transactional_ids") > 0, text)


def _censored() -> Column:
    text = f.format_string(
        "censored: %d refusals in this history; what would have come without them is not known, the need may be larger",
        f.col("history_refusals"),
    )
    return f.when(f.col("history_refusals") > 0, text)


def _run_time() -> Column:
    text = f.concat(
        f.lit("set at run time by "),
        f.col("set_by"),
        f.lit(": that stands above the file until it is reset (pidgate quotas)"),
    )
    return f.when(_is_set() & (f.col("source") == "run_time"), text)
