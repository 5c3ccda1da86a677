"""The kernel of a part of the users: each one's history replayed, its recommendation, and the rates tried."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Any, Final

import pyarrow as pa

from pidgate.pipeline import in_force
from pidgate.pipeline.failover.cascade import Heap
from pidgate.pipeline.kernels import ArrowTables, Kernel
from pidgate.pipeline.recommend.chosen import A_DAY_MS, Action, Asked, choose
from pidgate.pipeline.recommend.measured import COST, MEASURES, Course, measured
from pidgate.pipeline.recommend.sentences import reasons, remedies
from pidgate.pipeline.recommend.trial import rounded_up
from pidgate.pipeline.schemas import schema_of

Row = dict[str, Any]

DEFAULT_COVERS: Final = 0.95
"""Share of today's healthy users for which the default is enough."""
JUDGED_SHARE: Final = 7 / 30
JUDGED_MOST_MS: Final = 7 * A_DAY_MS
"""At most the last week judges the rates; the days before it are for learning."""
TOTALS: Final = schema_of(
    "int64: begin_ms split_ms end_ms history_ms history_days least_history_ms least_days least_ids heap_bytes "
    "default_users default_covers default_states recommended_states unlimited judged_healthy_ids "
    "judged_cap_refused_healthy; double: headroom states_that_fit broker_share default_rate; string: healthy_by"
)
RECOMMENDATIONS: Final = pa.schema(
    [
        *schema_of(
            "string: user owner mode source set_by action lacks; double: current_rate recommended_rate headroom; "
            "bool: lower_bound"
        ),
        *MEASURES,
        *schema_of(
            "int64: cap_states mended_states recommended_states first_ms last_ms days history_ms; "
            "strings: patterns rogues; string: client top_topic; int64: top_broker; strings: reasons remedies"
        ),
    ]
)
CANDIDATES: Final = pa.schema(
    [*schema_of("string: user; int64: ids requests records; double: candidate_rate"), *COST]
)
EXTENT: Final = schema_of("int64: day first_ms last_ms")
RESULTS: Final = {
    "recommendations": RECOMMENDATIONS,
    "recommend_candidates": CANDIDATES,
    "recommend_extent": EXTENT,
}
HARMFUL: Final = schema_of("string: user client_id address; bool: is_harmful")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is the same for all users. Picklable."""

    asked: Asked
    config: in_force.InForce | None
    shares: in_force.Shares
    expiry_ms: int
    healthy_by: str
    """Where the health of ids comes from."""
    harmful: pa.Table
    """HARMFUL: places of harmful findings."""
    findings: Mapping[str, Row]
    """User -> patterns and rogues that `offenders` found."""

    @property
    def broker_share(self) -> float:
        """Largest share of a cluster's states on one broker; 1 without topology, an upper bound."""
        return max(self.shares.get(in_force.UNKNOWN_TOPIC, {}).values(), default=1.0)

    def shared_totals(self, extent: Iterable[Row]) -> Row | None:
        """Return the columns of TOTALS that do not depend on users; None if no decision names a user.

        `extent`: the days of the history. Days without any event are a gap, and no evidence of rest.
        """
        rows = list(extent)
        first_ms = min((row["first_ms"] for row in rows if row["first_ms"] is not None), default=None)
        if first_ms is None:
            return None
        end_ms = max(row["last_ms"] for row in rows if row["last_ms"] is not None) + 1
        days, heap_bytes = len({row["day"] for row in rows}), self.asked.heap_bytes
        return {
            "begin_ms": first_ms,
            "split_ms": end_ms - min(JUDGED_MOST_MS, int((end_ms - first_ms) * JUDGED_SHARE)),
            "end_ms": end_ms,
            "history_ms": min(end_ms - first_ms, days * A_DAY_MS),
            "history_days": days,
            "healthy_by": self.healthy_by,
            "headroom": self.asked.headroom,
            "least_history_ms": self.asked.least_history_ms,
            "least_days": self.asked.least_days,
            "least_ids": self.asked.least_ids,
            "heap_bytes": heap_bytes,
            "states_that_fit": None if heap_bytes is None else Heap(heap_bytes).states_that_fit,
            "broker_share": self.broker_share,
        }

    def states_of(self, rate: float, partitions_per_id: float) -> int:
        """Return the most producer states that a rate allows on the fullest broker, at once."""
        held_ms = self.expiry_ms + in_force.CHECK_INTERVAL_MS
        ids = rate * in_force.windows(in_force.settings(self.config), held_ms) + 1
        return round(ids * partitions_per_id * self.broker_share)


def by_user(question: Question, tables: ArrowTables) -> dict[str, pa.Table]:
    """Return the result tables of these users. All arrivals of one user are in memory."""
    with Kernel({"seen": tables["seen"]}) as kernel:
        kernel.run("recommend/by_user")
        stories = {row["user"]: row for row in kernel.table("stories").to_pylist()}
    totals, quota_of = (
        question.shared_totals(tables["extent"].to_pylist()),
        in_force.quotas_of(question.config),
    )
    rows: list[Row] = []
    tried: list[Row] = []
    if totals is not None and len(tables["history"]):
        course = Course(
            in_force.settings(question.config),
            totals["begin_ms"],
            totals["split_ms"],
            totals["end_ms"],
            headroom=question.asked.headroom,
            given=question.asked.tried,
        )
        for measures in measured(tables["history"], course, lambda user: quota_of(user)["current_rate"]):
            user = measures["user"]
            rows.append(
                advised_user(
                    question, totals, {**measures, **stories.get(user, {}), **quota_of(user), "user": user}
                )
            )
            counts = {name: measures[name] for name in ("user", "ids", "requests", "records")}
            tried += ({**counts, **cost} for cost in measures["tried"])
    return {
        "recommendations": pa.Table.from_pylist(rows, RECOMMENDATIONS),
        "recommend_candidates": pa.Table.from_pylist(tried, CANDIDATES),
        "recommend_extent": tables["extent"],
    }


def advised_user(question: Question, totals: Row, user: Row) -> Row:
    """Return the row of recommendations of a user with its measures, story and quota in force."""
    of_topic = question.shares.get(user["top_topic"], {})
    user |= {
        "history_ms": totals["history_ms"],
        "healthy_refusals": user["healthy_refusals"] + user["unnamed_refusals"],
        "headroom": question.asked.headroom,
        "top_broker": max(of_topic, key=lambda broker: (of_topic[broker], -broker), default=None),
        "patterns": [],
        "rogues": [],
        **question.findings.get(user["user"], {}),
    }
    action, rate, lack = choose(user, question.asked)
    rates = {
        "cap_states": user["cap_rate"],
        "mended_states": user["mended_rate"],
        "recommended_states": rate if rate is not None else user["current_rate"],
    }
    partitions = user["partitions_per_id"]
    user |= {
        "action": action.value,
        "recommended_rate": rate,
        "lacks": lack.value if lack else "",
        "lower_bound": user["healthy_refusals"] > 0,
        **{name: None if of is None else question.states_of(of, partitions) for name, of in rates.items()},
    }
    return user | {"reasons": reasons(user, totals), "remedies": remedies(user)}


SUMMED: Final = (
    "select action, rogue_ids, mended_rate, partitions_per_id, recommended_states, judged_healthy_ids, "
    "judged_cap_refused_healthy from found"
)
"""The columns of recommendations that totals_of() reads."""


def totals_of(question: Question, shared: Row, rows: Sequence[Row]) -> Row:
    """Return the row of recommend_totals: `shared`, and the sums over all users."""
    rated = [row for row in rows if row["action"] != Action.NONE]
    healthy = [row for row in rated if not row["rogue_ids"]]
    rates = sorted(row["mended_rate"] for row in healthy)
    default = rounded_up(rates[ceil(DEFAULT_COVERS * len(rates)) - 1]) if rates else None
    partitions = fsum(row["partitions_per_id"] for row in healthy) / max(1, len(healthy))
    return {
        **shared,
        "default_users": len(healthy),
        "default_rate": default,
        "default_covers": 0 if default is None else bisect_right(rates, default),
        "default_states": 0 if default is None else question.states_of(default, partitions),
        "recommended_states": sum(row["recommended_states"] or 0 for row in rows),
        "unlimited": sum(row["recommended_states"] is None for row in rows),
        **{
            name: sum(row[name] or 0 for row in rated)
            for name in ("judged_healthy_ids", "judged_cap_refused_healthy")
        },
    }
