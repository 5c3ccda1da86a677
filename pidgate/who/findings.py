"""Findings of one user, from its picture. Pure.

Every rule looks at a picture alone; its thresholds are constants beside it, and each has near misses in the
tests. A place (address and kind of client id) gets at most one finding (place_findings.py); what several places
have in common, a deployment, steady producers, transactions, is a user's finding (user_findings.py).
"""

from __future__ import annotations

from datetime import tzinfo

from pidgate.events.patterns import CALM
from pidgate.who import place_findings, user_findings
from pidgate.who.finding import Finding
from pidgate.who.picture import UserPicture, Window


def findings(user: UserPicture, window: Window, zone: tzinfo | None = None) -> list[Finding]:
    """Return all findings of one user, trouble first. Never empty."""
    found = place_findings.of_places(user.places)
    with_findings = {address for finding in found for address in finding.addresses}
    calm_places = [place for place in user.places if place.address not in with_findings]
    deploy = user_findings.rolling_deployment(calm_places, window, zone)
    if not found and deploy is None:
        found += _given(user_findings.scattered(user))
    found += _given(user_findings.unused(user), user_findings.transactional(user), deploy)
    if all(finding.kind in CALM for finding in found):
        found += _given(user_findings.steady(user, 0 if deploy is None else deploy.ids))
    return found or [user_findings.unknown(user)]


def _given(*findings: Finding | None) -> list[Finding]:
    return [finding for finding in findings if finding is not None]
