"""Findings of the report in plain words and in order: users, causes and remedies.

Pure: rows in, sentences out. Readers may not know Kafka, so its terms are explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pidgate.findings.patterns import pattern_words
from pidgate.pipeline.recommend.sentences import advice
from pidgate.pipeline.report.rows import Found, Row, UserRow
from pidgate.pipeline.report.words import count, duration, evidence, listed, moment, sentence, share
from pidgate.quota.entities import shown
from pidgate.units import counted

_MOST_USERS = 8
_ACCURATE = 0.95
_GOES_ON_MS = 24 * 3_600_000


class Weight(StrEnum):
    """Weight of a finding."""

    BAD = "bad"
    WARN = "warn"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `user`: the user whose page has details."""

    weight: Weight
    headline: str
    why: str
    action: str = ""
    user: str | None = None


def findings(found: Found) -> list[Finding]:
    """Return all findings: offenders, then doubts about the data, then healthy facts."""
    return [*_offenders(found), *_doubts(found), *_well(found)]


def summary(found: Found) -> str:
    """Return the headline sentence."""
    totals = found.totals
    if totals is None:
        return "The number of producer ids is unknown: run pidgate pipeline rates."
    first_ms, last_ms = totals["first_ms"], totals["last_ms"]
    text = (
        f"{counted(totals['users'], 'user')} opened {counted(totals['new_ids'], 'new producer id')} from "
        f"{moment(first_ms)} to {moment(last_ms)} ({duration(last_ms - first_ms)})."
    )
    guilty = _guilty(found)
    if not guilty or not totals["new_ids"]:
        return text
    burnt = sum(user.burnt_ids for user in guilty)
    return (
        f"{text} {count(len(guilty))} of them burn{'s' if len(guilty) == 1 else ''} ids: "
        f"{share(min(1.0, burnt / totals['new_ids']))} of all new ids come from harmful patterns."
    )


def name_of(user: str) -> str:
    """Return a user's display name; unidentified users have an empty name in old events."""
    return shown(user) or "(no user name)"


def _guilty(found: Found) -> Sequence[UserRow]:
    return [user for user in found.users if user.harmful]


def _offenders(found: Found) -> Iterator[Finding]:
    guilty = _guilty(found)
    for user in guilty[:_MOST_USERS]:
        worst = user.harmful[0]
        words = pattern_words(worst["pattern"])
        yield Finding(
            Weight.BAD,
            headline=_headline(user),
            why=sentence(worst["sentence"] or f"It {words.does}"),
            action=f"{words.remedy} {advice_sentence(user.recommendation)}".strip(),
            user=user.user,
        )
    if len(guilty) > _MOST_USERS:
        others = [name_of(user.user) for user in guilty[_MOST_USERS:]]
        yield Finding(
            Weight.BAD,
            headline=f"{counted(len(others), 'more user')} with harmful patterns",
            why=f"{listed(others, 10)}; the table of users has them all.",
        )


def _headline(user: UserRow) -> str:
    worst = user.harmful[0]
    where = f" ({worst['client_id']})" if worst["client_id"] else ""
    also = [pattern_words(one["pattern"]).name.lower() for one in user.harmful[1:]]
    return (
        f"{name_of(user.user)}{where} {pattern_words(worst['pattern']).does}: "
        f"{counted(worst['new_ids'], 'new id')}, {share(worst['share'])} of all it opened"
        f"{'; also ' + listed(also) if also else ''}"
    )


def advice_sentence(row: Row | None) -> str:
    """Return the recommended rates and their price, as sentences."""
    if row is None:
        return ""
    return " ".join(sentence(f"{one[0].upper()}{one[1:]}") for one in advice(row))


def goes_on(row: Row, end_ms: int) -> str:
    """Return whether a rogue was still there at the end of the history."""
    last = row["rogue_last_ms"]
    if last is None:
        return "It has no harmful id."
    if end_ms - last < _GOES_ON_MS:
        return f"Goes on: its last harmful id came {duration(end_ms - last)} before the end of the history."
    return f"Its last harmful id came on {moment(last)}."


def facts(found: Row) -> list[tuple[str, str]]:
    """Return the facts about a pattern's largest source, by name."""
    origin = [("client id", found["client_id"] or ""), ("address", found["address"] or "")]
    features = [evidence(name, value) for name, value in sorted((found["evidence"] or {}).items()) if value]
    return [(name, value) for name, value in (*origin, *features) if value]


def _doubts(found: Found) -> Iterator[Finding]:
    lost = sum((found.lost or {}).values())
    if lost:
        yield Finding(
            Weight.WARN,
            headline=f"{counted(lost, 'event')} never arrived",
            why=f"Gateways numbered them, but they are missing from the topic ({listed(list(found.lost or {}))}). "
            "Counts in this report are lower bounds.",
            action="Check the gateways' metrics for dropped events, and the topic's retention.",
        )
    dead = sum((found.dead_letters or {}).values())
    if dead:
        yield Finding(
            Weight.WARN,
            headline=f"{counted(dead, 'event')} could not be read",
            why=f"They are in dead_letters with their reason: {listed(list(found.dead_letters or {}))}.",
        )
    for claim, reason in found.clocks.sentences():
        yield Finding(
            Weight.WARN,
            headline=claim,
            why=reason,
            action="Synchronise the gateways' clocks (NTP), and keep the topic's LogAppendTime.",
        )
    if found.advice and found.advice["lower_bounds"]:
        yield Finding(
            Weight.WARN,
            headline=f"The rates of {counted(found.advice['lower_bounds'], 'user')} are lower bounds",
            why="While a quota was enforced, refused producers may have given up or never returned, so their ids are "
            "missing from the history.",
            action="Observe such a user for a week, then run recommend with --since.",
        )
    exhausted = found.blocks["exhausted"] if found.blocks else 0
    if exhausted:
        yield Finding(
            Weight.WARN,
            headline=f"{counted(exhausted, 'producer id')} used up all epochs",
            why="A producer raises its epoch after an error, and at each new session of a transactional id (KIP-360). "
            "Epochs have 16 bits; after the last one the producer gets a new id.",
            action="Its user gets very many errors: see its page and its broker's errors.",
        )
    weak = [
        pattern_words(one["pattern"]).name.lower()
        for one in found.accuracy or ()
        if any(of is not None and of < _ACCURATE for of in (one["precision"], one["recall"]))
    ]
    if weak:
        yield Finding(
            Weight.WARN,
            headline=f"The detector is below {share(_ACCURATE)} on {listed(weak)}",
            why="Measured on users with known patterns. See the section on accuracy.",
        )


def _by_pattern(users: Sequence[UserRow]) -> str:
    """Count users by pattern, most frequent first."""
    counts = Counter(one["pattern"] for user in users for one in user.patterns)
    shown = [f"{pattern_words(pattern).name.lower()}: {count(n)}" for pattern, n in counts.most_common()]
    return listed(shown, 8).capitalize()


def _well(found: Found) -> Iterator[Finding]:
    if "offenders" not in found.has:
        yield Finding(
            Weight.WARN,
            "No user was judged yet",
            "Run pidgate pipeline offenders to find the causes.",
        )
        return
    others = [user for user in found.users if user.patterns and not user.harmful]
    unknown = [user for user in others if user.is_unknown]
    known = [user for user in others if not user.is_unknown]
    if unknown:
        yield Finding(
            Weight.WARN,
            f"{counted(len(unknown), 'user')} with an unknown cause",
            f"Too little is known, or no rule matches: {listed([name_of(user.user) for user in unknown])}.",
        )
    if known:
        yield Finding(
            Weight.GOOD,
            f"{counted(len(known), 'user')} without a harmful pattern",
            f"{_by_pattern(known)}.",
        )
    elif not unknown and not _guilty(found):
        yield Finding(Weight.GOOD, "No user burns producer ids", "No user shows a harmful pattern.")
