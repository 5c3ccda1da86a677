"""The kernel of a part of the users: their places and sources, calm applications, and findings in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from pidgate.findings import cadence, families, features
from pidgate.findings.features import AppFeatures, SourceFeatures, Span, features_of
from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.findings.rules import APPS, SOURCES, is_unknown, pattern_of
from pidgate.findings.sentences import Row, evidence, sentence, unexplained
from pidgate.pipeline.kernels import ArrowTables, Kernel
from pidgate.pipeline.schemas import schema_of

FINDINGS: Final = pa.schema(
    [
        *schema_of(
            "string: user pattern; bool: harmful; int64: new_ids; double: share; string: client_id address"
        ),
        ("evidence", pa.map_(pa.string(), pa.string())),
        ("sentence", pa.string()),
    ]
)
PLACES: Final = schema_of("string: user client_id address pattern")
_PATTERNS: Final = schema_of("int64: source; string: pattern; bool: is_harmful")


def by_user(tables: ArrowTables) -> dict[str, pa.Table]:
    """Return the result tables `offenders` and `offenders_places` of these users.

    `tables`: producers, span and connection. The span covers all users.
    """
    span = _span(tables["span"])
    with prepared(tables, span) as kernel:
        kernel.run("offenders/sources")
        sources = list(judged_sources(kernel))
        patterns = [
            {"source": one["source"], "pattern": one["pattern"], "is_harmful": one["pattern"] in HARMFUL}
            for one in sources
            if one["pattern"] is not None
        ]
        kernel.add("patterns", pa.Table.from_pylist(patterns, _PATTERNS))
        kernel.run("offenders/apps")
        apps = list(_judged_apps(kernel))
        places = kernel.table("harmful_places")
    return {
        "offenders": pa.Table.from_pylist(list(findings(sources, apps)), FINDINGS),
        "offenders_places": places.cast(PLACES),
    }


def prepared(tables: ArrowTables, span: Span, *, own_story: int = families.OWN_STORY) -> Kernel:
    """Return a kernel with what the scripts read besides: families of client ids, gaps, periods and thresholds."""
    kernel = Kernel(tables, {**_variables(span), "own_story": own_story})
    kernel.add("families", _families(tables["producers"]))
    kernel.add("gaps", pa.table({"gap_ms": cadence.BURST_GAPS_MS}))
    kernel.add("periods", pa.table({"period_ms": cadence.PERIODS_MS}))
    return kernel


def _span(spans: pa.Table) -> Span:
    """Return when the events begin and end, from the spans of all buckets."""
    first, last = (
        [at_ms for at_ms in spans[name].to_pylist() if at_ms is not None] for name in ("first_ms", "last_ms")
    )
    return Span(min(first, default=0), max(last, default=0))


def _variables(span: Span) -> dict[str, float]:
    return {
        "short_life_ms": features.SHORT_LIFE_MS,
        "overlap_ms": cadence.OVERLAP_MS,
        "fewest_periods": cadence.FEWEST_PERIODS,
        "even_low": cadence.EVEN[0],
        "even_high": cadence.EVEN[1],
        "grown_low": cadence.GROWN[0],
        "grown_high": cadence.GROWN[1],
        "head_until_ms": span.head_until_ms,
        "open_from_ms": span.open_from_ms,
        "long_ms": span.long_ms,
        "session_gap_ms": span.session_gap_ms,
        "minute_ms": max(1, min(60_000, span.session_gap_ms // 10)),
        "fewest_instances": features.FEWEST_INSTANCES,
        "replaced": features.REPLACED,
    }


def _families(producers: pa.Table) -> pa.Table:
    names = producers["client_id"].unique().to_pylist()
    return pa.table(
        {
            "client_id": pa.array(names, pa.string()),
            "family": pa.array(map(families.family, names), pa.string()),
        }
    )


def judged_sources(kernel: Kernel) -> Iterator[dict[str, Any]]:
    """Yield sources with their features and `pattern`; None: calm."""
    beats: dict[int, list[Row]] = defaultdict(list)
    for row in kernel.table("beats").to_pylist():
        beats[row["source"]].append(row)
    clocks: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in kernel.table("clocks").to_pylist():
        clocks[row["source"]][row["gap_ms"]].append(row)
    for row in kernel.table("sources").to_pylist():
        at_gap = clocks[row["source"]]
        rhythm = cadence.best_beat(
            (one["gap_ms"], cadence.beat(one, at_gap[one["gap_ms"]])) for one in beats[row["source"]]
        )
        for name in {"interval_ms", "pause_ms", "run_ms"} & rhythm.keys():
            rhythm[name] = int(rhythm[name])
        found = {**row, "life_ms": _mean_ms(row["log_life"], row["used"]), **rhythm}
        yield {**found, "pattern": pattern_of(SOURCES, features_of(SourceFeatures, found))}


def _judged_apps(kernel: Kernel) -> Iterator[dict[str, Any]]:
    """Yield applications with their features and `pattern`; None: no rule fits."""
    for row in kernel.table("apps").to_pylist():
        late, over = row["late_ids"], row["over_ids"]
        found = {
            **row,
            "client": row["only_client_id"] or row["app"],
            "over_life_ms": _mean_ms(row["log_over_life"], over),
            "starts_rhythm": _concentration(row["starts_across"], row["starts_up"], late),
            "ends_rhythm": _concentration(row["ends_across"], row["ends_up"], over),
        }
        yield {**found, "pattern": pattern_of(APPS, features_of(AppFeatures, found))}


def _mean_ms(logarithms: int, count: int) -> int | None:
    return int(cadence.geometric_mean(logarithms, count)) if count else None


def _concentration(across: int | None, up: int | None, count: int) -> float | None:
    """Return how far times keep to one hour of the day: 0 not at all, 1 always the same moment."""
    return math.hypot(across or 0, up or 0) / cadence.MILLION / count if count else None


def findings(sources: Iterable[Row], apps: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `offenders`, at least one for each user.

    A user's sources (or applications) of one pattern are one finding, which describes the largest.
    """
    alike: dict[tuple[str, Pattern], list[Row]] = defaultdict(list)
    all_ids: dict[str, int] = defaultdict(int)
    for row in (*(source for source in sources if source["pattern"] is not None), *apps):
        all_ids[row["user"]] += row["new_ids"]
        if row["pattern"] is not None:
            alike[row["user"], row["pattern"]].append(row)
    explained: dict[str, int] = defaultdict(int)
    for (user, pattern), rows in alike.items():
        ids = sum(row["new_ids"] for row in rows)
        explained[user] += ids
        largest = max(rows, key=lambda row: (row["new_ids"], row["client"], row["address"] or ""))
        yield finding(pattern, largest, len(rows), ids, all_ids[user])
    found = {user for user, _ in alike}
    for user, ids in all_ids.items():
        rest = ids - explained[user]
        if user not in found or is_unknown(rest, ids):
            yield finding(Pattern.UNKNOWN, {"user": user}, 0, rest, ids)


def finding(pattern: Pattern, row: Row, alike: int, ids: int, all_ids: int) -> dict[str, Any]:
    """Return the row of `offenders` for a pattern, in words. `row`: its largest source or application, if known."""
    if pattern is Pattern.UNKNOWN:
        numbers, text = {"unexplained": str(ids)}, unexplained(row["user"], ids, all_ids)
    else:
        numbers = {name: str(value) for name, value in evidence(pattern, row).items()} | {
            "sources": str(alike)
        }
        text = sentence(pattern, row, alike)
    return {
        "user": row["user"],
        "pattern": pattern.value,
        "harmful": pattern in HARMFUL,
        "new_ids": ids,
        "share": ids / all_ids if all_ids else 0.0,
        "client_id": row.get("client"),
        "address": row.get("address"),
        "evidence": list(numbers.items()),
        "sentence": text,
    }
