"""Reasons for a recommended rate, as sentences for the person who has to answer for it: the one readable table."""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from pidgate.pipeline.offenders import words


class Reason(NamedTuple):
    """A sentence, and when it holds (Spark SQL). What stands in its {braces} is SQL, too, in one of FORMS."""

    holds: str
    sentence: str


FORMS = {
    "": "{}",
    ":rate": r"regexp_replace(format_string('%.3f', {}), r'\.?0+$', '')",
    ":s": "ceil({} / 1000)",
}
"""Numbers are written as they are, as a rate (43, 0.5), or in seconds that are given in ms."""
_PLACE = re.compile(r"\{([^:}]+)(:\w+)?\}")

_SET = "action = 'set'"
_IN_FORCE = f"{_SET} and current_rate is not null"
_ROGUE = "rogue_ids > 0 and action != 'none'"
_LOOSE = f"{_ROGUE} and judged.train.rogue_admitted > 0.5 * rogue_ids"
_APART = (
    "no rate holds the rogue and refuses no healthy id that comes while it runs: give it a user of its own"
)

REASONS = (
    Reason("action = 'none' and exempt", "exempt: counted, never refused"),
    Reason("action = 'none' and not exempt", "no new ids in the days that were learnt from"),
    Reason(
        f"{_SET} and healthy_peak > 0",
        "healthy producers brought at most {healthy_peak} new ids in a window; {least.rate:rate} is the least rate "
        "tried that refuses none",
    ),
    Reason(
        f"{_SET} and healthy_peak = 0",
        "no healthy producer was seen: {pick.rate:rate} is the least rate tried",
    ),
    Reason(
        f"{_SET} and alive > greatest(healthy_peak, 1)",
        "{alive} ids were in use at the same time: a restart of all of them at once "
        "{if(pick.rate >= alive, 'fits', 'would have to wait')}",
    ),
    Reason(
        f"{_SET} and pick.train.healthy_refused > 0",
        "{pick.train.healthy_refused} healthy ids of the days learnt from would have had to wait, the longest for "
        "{pick.train.longest_wait_ms:s} s; none gives up",
    ),
    Reason(f"{_SET} and current_rate is null", "no rate is in force"),
    Reason(
        f"{_IN_FORCE} and now.train.healthy_refused > 0",
        "the rate in force ({current_rate:rate}) would have refused {now.train.healthy_refused} healthy ids",
    ),
    Reason(
        f"{_IN_FORCE} and now.train.healthy_refused = 0 and now.train.rogue_admitted > 0",
        "the rate in force ({current_rate:rate}) lets in {now.train.rogue_admitted} of {rogue_ids} ids of rogue "
        "producers",
    ),
    Reason(
        f"{_IN_FORCE} and coalesce(now.train.healthy_refused + now.train.rogue_admitted, 0) = 0",
        "the rate in force ({current_rate:rate}) is less",
    ),
    Reason(
        _ROGUE,
        "{coalesce(nullif(array_join(patterns, ', '), ''), 'rogue')}: of "
        "{judged.test.rogue_admitted + judged.test.rogue_refused} ids of rogue producers in the judged days it lets in "
        "{judged.test.rogue_admitted}; the maximum of history ({naive}) lets in {plain.test.rogue_admitted}",
    ),
    Reason(
        f"{_LOOSE} and healthy_peak = 0",
        "the rogue is so slow that no rate tried holds it: look for its cause, not for a quota",
    ),
    Reason(f"{_LOOSE} and healthy_peak > 0 and holding is null", _APART),
    Reason(
        f"{_LOOSE} and healthy_peak > 0 and holding is not null",
        f"{_APART}; or set "
        "{holding.rate:rate}: the healthy would have waited up to {holding.train.longest_wait_ms:s} s, and "
        "{holding.train.rogue_admitted} of {rogue_ids} rogue ids come in",
    ),
    Reason(
        "judged.test.healthy_refused > 0",
        "in the judged days it would have made {judged.test.healthy_refused} healthy ids wait",
    ),
    Reason(
        "rogue_transactional_ids > 0",
        "{rogue_transactional_ids} of its rogue ids are of transactions, refused only with "
        "quotas.producer_ids.transactional: enforce",
    ),
    Reason(
        "history_refusals > 0",
        "censored: {history_refusals} refusals in this history; what would have come without them is not known, the "
        "need may be larger",
    ),
    Reason(
        f"{_SET} and source = 'run_time'",
        "set at run time by {set_by}: that stands above the file until it is reset (pidgate quotas)",
    ),
)


def reasons() -> Column:
    """array<string>, of the columns that chosen.recommendations() has by then."""
    return f.array_compact(f.array(*(f.expr(f"if({one.holds}, {_said(one)}, null)") for one in REASONS)))


def _said(reason: Reason) -> str:
    """Return SQL that fills the sentence."""
    numbers = [FORMS[form].format(sql) for sql, form in _PLACE.findall(reason.sentence)]
    return f"format_string({', '.join([words.text(_PLACE.sub('%s', reason.sentence)), *numbers])})"
