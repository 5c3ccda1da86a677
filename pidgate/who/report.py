"""`pidgate who --json`: a stable format, described in docs/how-to/who.md. Fields are added, never renamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pidgate.who.bounded import Spread
from pidgate.who.coverage import Coverage
from pidgate.who.findings import Finding
from pidgate.who.libraries import Library, libraries_of
from pidgate.who.picture import Named, Picture, QuotaShown, UserPicture

SCHEMA_VERSION: Final = 1

Findings = Mapping[str, Sequence[Finding]]
"""Findings by user."""


def report(picture: Picture, users: Sequence[UserPicture], findings: Findings) -> dict[str, Any]:
    """Return the report as JSON. `users`: the users of the picture to be shown."""
    return {
        "schema_version": SCHEMA_VERSION,
        "cluster": picture.cluster,
        "topic": picture.topic,
        "window": {
            "from_ms": picture.window.from_ms,
            "to_ms": picture.window.to_ms,
            "asked_from_ms": picture.window.given_from_ms,
        },
        "events": {
            "read": picture.events,
            "duplicates": picture.duplicates,
            "unreadable": picture.unreadable,
        },
        "lost_events": picture.lost_events,
        "lost": [asdict(lost) for lost in picture.lost],
        "gateways": list(picture.gateways),
        "users": [_user(user, findings[user.user]) for user in users],
        "users_not_shown": len(picture.users) - len(users),
        "coverage": None if picture.coverage is None else _coverage(picture.coverage),
        "left_out": {"events_of_further_users": picture.users_beyond, "id_marks": picture.ids_beyond},
        "notes": list(picture.notes),
        "shared_ids": [asdict(shared) for shared in picture.shared_ids],
    }


_COUNTS: Final = (
    "new_ids", "admitted_ids", "would_refuse_ids", "refused_ids", "never_admitted_ids", "gave_up",
    "after_refusal_ids", "open_connections",
    "used_ids", "returned_ids", "open_ids", "long_lived_ids", "allocated_ids", "unused_ids",
    "transactional_ids", "bumped_ids",
)  # fmt: skip


def _user(user: UserPicture, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "user": user.user,
        **{name: getattr(user, name) for name in _COUNTS},
        "client_ids": _named(user.client_ids),
        "software": _named(user.software),
        "addresses": _named(user.addresses),
        "libraries": [_library(library) for library in libraries_of(user)],
        "ids_per_connection": _spread(user.ids_per_connection),
        "life_ms": _spread(user.life_ms),
        "requests_per_id": _spread(user.requests),
        "records_per_id": _spread(user.records),
        "partitions_per_id": _spread(user.partitions),
        "sampled_one_in": user.one_in,
        "quota": None if user.quota is None else _quota(user.quota),
        "findings": [_finding(finding) for finding in findings],
    }


def _library(library: Library) -> dict[str, Any]:
    patience = library.patience
    return {
        "software": library.software,
        "ids": library.ids,
        "gives_up_after_s": None if patience is None else patience.seconds,
        "setting": None if patience is None else patience.setting,
        "faults": [
            {"fault": fault.key, "breaks": fault.breaks, "remedy": fault.remedy} for fault in library.faults
        ],
    }


def _named(named: Named) -> dict[str, Any]:
    return {
        "count": named.names,
        "more_than_counted": named.more_than_counted,
        "top": [{"name": name, "ids": ids} for name, ids in named.top],
    }


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    if spread is None:
        return None
    return {
        "ids": spread.count,
        "mean": round(spread.mean, 3),
        "median": spread.median,
        "p90": spread.p90,
        "max": spread.greatest,
    }


def _quota(quota: QuotaShown) -> dict[str, Any]:
    rate_milli = quota.effective.rate_milli
    return {
        "producer_ids_rate": None if rate_milli is None else rate_milli / 1_000,
        "window_ms": quota.window_ms,
        "mode": str(quota.effective.mode),
        "exempt": quota.effective.exempt,
        "source": quota.source,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": str(finding.kind),
        "text": finding.text,
        "remedy": finding.remedy,
        "ids": finding.ids,
        "addresses": list(finding.addresses),
        "evidence": dict(finding.evidence),
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {**asdict(coverage), "around": coverage.around, "share": round(coverage.share, 6)}
