"""Checks based on the clients' journals, the broker's disk and log, and the files written by the jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from tools.sandbox.demo.findings import ids_refused
from tools.sandbox.demo.plan import MALLORY
from tools.sandbox.demo.verifier import GATEWAY_PROCESS, JOURNAL, LIBRARY, READ_BACK, SEGMENTS
from tools.sandbox.pipeline_demo.acts import ActEvidence
from tools.sandbox.pipeline_demo.plan import BURST, HEALTHY
from tools.sandbox.play import Check

REPORT = "the report's file"
FILE = "recommended/quotas.yaml"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All results."""

    observed: ActEvidence
    enforced: ActEvidence
    findings: Sequence[Mapping[str, Any]]
    """As printed by `report --json`."""
    page: str
    """The report's text."""
    quotas: Mapping[str, Any]
    """The section of the recommended file."""
    checked: str | None
    """Errors of `pidgate check` in the file, or None."""


def verify(evidence: Evidence) -> list[Check]:
    """Return all checks in display order."""
    return [
        _rogue_went_free(evidence.observed),
        *_report(evidence),
        Check(
            "pidgate check accepts the recommended file as it is",
            evidence.checked is None,
            evidence.checked or "no objection",
            FILE,
        ),
        _held(evidence),
        _told_why(evidence.enforced),
        *_healthy("observed", evidence.observed),
        *_healthy("enforced", evidence.enforced),
        _gateway("observed", evidence.observed),
        _gateway("enforced", evidence.enforced),
    ]


def first_finding(page: str) -> str:
    """Return the report's first finding without markup, or an empty string."""
    found = re.search(r'<ol class="findings">\s*<li[^>]*>(.*?)</li>', page, re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found[1])).split()) if found else ""


def rate_of(quotas: Mapping[str, Any], user: str) -> float | None:
    rate = (quotas.get("users") or {}).get(user, {}).get("producer_ids_rate")
    return None if rate is None else float(rate)


def at_most(rate: float) -> int:
    """Return the new ids that a full bucket admits immediately: rate x burst, and one more on credit."""
    return int(rate * BURST) + 1


def _rogue_went_free(observed: ActEvidence) -> Check:
    brought, refused = observed.mallory_ids_in_log, ids_refused(observed.mallory)
    return Check(
        "observed, mallory burns producer ids and no user is refused",
        brought >= 50 and refused == 0,
        f"{brought:,} ids of hers in the log, {refused:,} refused",
        f"{SEGMENTS}; {JOURNAL}",
    )


def _report(evidence: Evidence) -> Iterator[Check]:
    said = first_finding(evidence.page)
    yield Check(
        "the report's first finding names mallory and why",
        MALLORY in said and "opens a new producer for each batch" in said,
        said[:110] or "no finding",
        REPORT,
    )
    accused = {str(one["user"]) for one in evidence.findings if one["weight"] == "bad"}
    yield Check(
        "it accuses no other user", accused == {MALLORY}, ", ".join(sorted(accused)) or "nobody", REPORT
    )
    rate = rate_of(evidence.quotas, MALLORY)
    yield Check(
        "a rate for mallory is recommended",
        rate is not None,
        "none" if rate is None else f"{rate:g} new ids per window",
        FILE,
    )


def _held(evidence: Evidence) -> Check:
    name = "under the recommended quotas mallory's ids stay within her rate"
    rate, ids = rate_of(evidence.quotas, MALLORY), evidence.enforced.mallory_ids_in_log
    if rate is None:
        return Check(name, False, f"{ids:,} ids, and there is no rate", SEGMENTS)
    # The refill during the act, for a window of an hour.
    bound = at_most(rate) + int(rate * evidence.enforced.ran_s / 3600)
    found = (
        f"{ids:,} ids in the log, at most {bound:,} allowed ({evidence.observed.mallory_ids_in_log:,} before)"
    )
    return Check(name, ids <= bound < evidence.observed.mallory_ids_in_log, found, SEGMENTS)


def _told_why(enforced: ActEvidence) -> Check:
    refused = ids_refused(enforced.mallory)
    entries = enforced.mallory.entries.values()
    messages = {refusal.message for entry in entries for refusal in entry.refusals}
    return Check(
        "she is refused with a reason",
        refused > 0 and all(MALLORY in message and "producer id" in message for message in messages),
        f"{refused:,} ids refused; {next(iter(sorted(messages)), '-')[:70]}",
        JOURNAL,
    )


def _healthy(when: str, act: ActEvidence) -> Iterator[Check]:
    for user in HEALTHY:
        saw = act.healthy[user]
        refused = "killed" if saw.refused is None else f"{saw.refused} refused"
        yield Check(
            f"{when}, all of {user}'s records are acknowledged, none refused",
            0 < saw.acknowledged == saw.sent and saw.refused == 0,
            f"{saw.acknowledged:,} of {saw.sent:,}; {refused}",
            f"{JOURNAL}; {LIBRARY}",
        )
        verdict = saw.verdict
        assert verdict is not None
        yield Check(
            f"{when}, they are in the log exactly once, in order",
            verdict.is_good and verdict.acknowledged == verdict.in_log > 0,
            f"{verdict.in_log:,} in the log" if verdict.is_good else verdict.summary(),
            READ_BACK,
        )


def _gateway(when: str, act: ActEvidence) -> Check:
    return Check(
        f"{when}, the gateway stopped on SIGTERM, without trouble",
        act.gateway_exit_code == 0 and not act.gateway_trouble,
        f"exit code {act.gateway_exit_code}; trouble logged: {', '.join(sorted(act.gateway_trouble)) or 'none'}",
        GATEWAY_PROCESS,
    )
