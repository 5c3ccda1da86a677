"""Findings of one user in the last hours: the rules of pidgate.findings over the features of its places. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pidgate.findings.families import ANYTHING
from pidgate.findings.features import AppFeatures, SourceFeatures, Span, UserFeatures, as_row
from pidgate.findings.patterns import HARMFUL, PATTERN_WORDS, WASTEFUL, Pattern
from pidgate.findings.rules import APPS, FEWEST_IDS, SOURCES, USERS, is_unknown, pattern_of
from pidgate.findings.sentences import evidence, sentence, unexplained
from pidgate.who.features import (
    Source,
    app_features,
    growing_ids,
    names_of,
    source_features,
    sources_of,
    user_features,
)
from pidgate.who.picture import Place, UserPicture, Window
from pidgate.who.words import software


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern of a user in words, with its numbers."""

    kind: Pattern
    text: str
    ids: int
    addresses: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        return PATTERN_WORDS[self.kind].remedy


@dataclass(frozen=True, slots=True)
class _Judged:
    """A source, or the calm places of an application, with a matching rule."""

    pattern: Pattern
    row: Mapping[str, Any]
    ids: int
    places: tuple[Place, ...]


def findings(user: UserPicture, window: Window) -> list[Finding]:
    """Return all findings of one user, trouble first. Never empty."""
    judged, calm = _judge_sources(user)
    judged += _judge_apps(user, calm, Span(window.from_ms, window.to_ms))
    of_user = _user_findings(user, judged, window)
    takes_another = any(finding.kind is Pattern.NEW_ID_AFTER_REFUSAL for finding in of_user)
    if takes_another and user.unprompted_ids < FEWEST_IDS:
        # The library opens no producer: its refused one goes on with another id.
        judged = [one for one in judged if one.pattern not in _BY_USE]
    if any(finding.kind is Pattern.UNCLOSED for finding in of_user):
        judged = [one for one in judged if one.pattern is not Pattern.STEADY]
    by_pattern: dict[Pattern, list[_Judged]] = {}
    for one in judged:
        by_pattern.setdefault(one.pattern, []).append(one)
    found = [_finding(pattern, alike) for pattern, alike in by_pattern.items()]
    found += of_user
    found.sort(key=lambda finding: (finding.kind not in HARMFUL, finding.kind not in WASTEFUL, -finding.ids))
    explained = sum(one.ids for one in judged) + sum(
        finding.ids for finding in of_user if finding.kind in (Pattern.NEW_ID_AFTER_REFUSAL, Pattern.UNCLOSED)
    )
    rest = max(0, user.new_ids - explained)
    if not found or is_unknown(rest, user.new_ids):
        found.append(Finding(Pattern.UNKNOWN, unexplained("", rest, user.new_ids), rest))
    return found


def _judge_sources(user: UserPicture) -> tuple[list[_Judged], list[Source]]:
    judged, calm = [], []
    for source in sources_of(user.places):
        features = source_features(source)
        pattern = pattern_of(SOURCES, features)
        if pattern is None:
            calm.append(source)
        else:
            row = _row(features, source.client, source.address, source.places)
            judged.append(_Judged(pattern, row, source.new_ids, source.places))
    return judged, calm


def _judge_apps(user: UserPicture, calm: Sequence[Source], span: Span) -> list[_Judged]:
    apps: dict[str, list[Place]] = {}
    for source in calm:
        apps.setdefault(source.app, []).extend(source.places)
    judged = []
    for app, places in apps.items():
        features, crowds = app_features(places, span)
        pattern = pattern_of(APPS, features)
        if pattern is not None:
            row = _row(features, *names_of(places, app), places) | crowds
            judged.append(_Judged(pattern, row, sum(place.new_ids for place in places), tuple(places)))
    return judged


_MOMENTARY: Final = (Pattern.PRODUCER_PER_BATCH, Pattern.PRODUCER_PER_TASK)
_BY_USE: Final = (*_MOMENTARY, Pattern.PRODUCER_PER_ERROR)
"""Patterns of an application, by how its ids are used."""


def _user_findings(user: UserPicture, judged: Sequence[_Judged], window: Window) -> list[Finding]:
    found = {one.pattern for one in judged}
    momentary_ids = sum(one.ids for one in judged if one.pattern in _MOMENTARY)
    features = user_features(user, momentary_ids or growing_ids(user, window))
    row = _row(features, *names_of(user.places, ANYTHING), user.places)
    patterns = [rule.pattern for rule in USERS if rule.fits(features)]
    if Pattern.RANDOM_TRANSACTIONAL_IDS in found and Pattern.TRANSACTIONAL in patterns:
        patterns.remove(Pattern.TRANSACTIONAL)
    ids = {
        Pattern.UNUSED_IDS: user.unused_ids,
        Pattern.NEW_ID_AFTER_REFUSAL: user.after_refusal_ids,
        Pattern.MANY_PARTITIONS: user.used_ids,
        Pattern.UNCLOSED: user.new_ids,
        Pattern.TRANSACTIONAL: user.transactional_ids,
    }
    return [
        Finding(pattern, sentence(pattern, row), ids[pattern], (), evidence(pattern, row))
        for pattern in patterns
    ]


def _finding(pattern: Pattern, alike: Sequence[_Judged]) -> Finding:
    """Return one finding for sources with the same pattern, described by the largest."""
    top = max(alike, key=lambda one: one.ids)
    return Finding(
        pattern,
        sentence(pattern, top.row, len(alike)),
        sum(one.ids for one in alike),
        tuple(dict.fromkeys(place.address for one in alike for place in one.places if place.address)),
        evidence(pattern, top.row),
    )


def _row(
    features: SourceFeatures | AppFeatures | UserFeatures,
    client: str,
    address: str | None,
    places: Sequence[Place],
) -> dict[str, Any]:
    largest = max(places, key=lambda place: place.new_ids, default=None)
    by = "" if largest is None else software(largest.software)
    return {**as_row(features), "user": "", "client": client, "address": address, "software": by}
