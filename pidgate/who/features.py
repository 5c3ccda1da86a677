"""The features of pidgate.findings, from a user's places in the last hours. Pure.

A process ends when the connection of its first batch does. The pipeline looks at the connection of its last batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import nan
from operator import attrgetter
from typing import Final

from pidgate.findings.cadence import cadence
from pidgate.findings.families import ANYTHING, OWN_STORY
from pidgate.findings.features import (
    FEWEST_INSTANCES,
    REPLACED,
    SHORT_LIFE_MS,
    AppFeatures,
    SourceFeatures,
    Span,
    UserFeatures,
)
from pidgate.who.picture import Life, Place, UserPicture, Window

DAY_MS: Final = 86_400_000
FEWEST_STARTS: Final = 8
_GONE_MS: Final = attrgetter("gone_ms")
"""Of a life: when its process had gone."""
GROWS_ON_MS: Final = 60_000
"""A deployment ends; a process that opens producers and never closes them goes on."""
ONE_AFTER_THE_OTHER_MS: Final = 100
"""Producers that start together are processes or threads of one start."""


@dataclass(frozen=True, slots=True)
class Source:
    """Places judged together. `address` None: several."""

    app: str
    client: str
    address: str | None
    places: tuple[Place, ...]

    @property
    def new_ids(self) -> int:
        return sum(place.new_ids for place in self.places)


def sources_of(places: Sequence[Place]) -> list[Source]:
    """Group places as Spark does, except that a place here is a family of client ids at an address.

    A place with OWN_STORY new ids is a source of its own, else its application at its address, else its
    application: that of further addresses, too (user_tally.py). Families too small for a story are one
    application.
    """
    ids: dict[str, int] = {}
    for place in places:
        ids[place.family] = ids.get(place.family, 0) + max(place.new_ids, len(place.lives))
    groups: dict[tuple[str, str | None], list[Place]] = {}
    found = []
    for place in places:
        app = place.family if ids[place.family] >= OWN_STORY else ANYTHING
        if place.address and place.new_ids >= OWN_STORY:
            found.append(Source(app, place.client_ids, place.address, (place,)))
        else:
            groups.setdefault((app, place.address), []).append(place)
    scattered: dict[str, list[Place]] = {}
    for (app, address), alike in groups.items():
        if address and sum(place.new_ids for place in alike) >= OWN_STORY:
            found.append(Source(app, app, address, tuple(alike)))
        else:
            scattered.setdefault(app, []).extend(alike)
    found += [Source(app, *names_of(alike, app), tuple(alike)) for app, alike in scattered.items()]
    return found


def names_of(places: Sequence[Place], app: str) -> tuple[str, str | None]:
    """Return the client id and the address of places if unique, else the family (`app`) and None."""
    clients, addresses = {place.client_ids for place in places}, {place.address for place in places}
    client = clients.pop() if len(clients) == 1 else app
    return client, (addresses.pop() or None) if len(addresses) == 1 else None


def source_features(source: Source) -> SourceFeatures:
    """Return the features of a source."""
    lives = [life for place in source.places for life in place.lives if life.started_ms is not None]
    used = [life for life in lives if life.requests is not None]
    refused = _ids(life for life in lives if life.refused)
    active_ms = _active_ms(lives)
    closed = [life for life in lives if life.was_cut is not None]
    codes = [life.error_code for life in lives if life.error_code is not None]
    return SourceFeatures(
        new_ids=source.new_ids - refused,
        refused_ids=refused,
        used=_ids(used),
        one_request=_mean(used, lambda life: (life.requests or 0) <= 1),
        two_requests=_mean(used, lambda life: (life.requests or 0) <= 2),
        requests=_mean(used, lambda life: life.requests or 0),
        short_lived=_mean(used, lambda life: _life_ms(life) < SHORT_LIFE_MS),
        life_ms=_geometric_mean(used, _life_ms),
        failed=_mean(used, lambda life: life.failed),
        error_code=min(codes, default=nan),
        transactional=_mean(lives, lambda life: life.transactional),
        names=sum({life.name: life.one_in for life in lives if life.name is not None}.values()),
        connections=_connections_per_id(source),
        alive=_sum(lives, _life_ms) / active_ms,
        active_ms=active_ms,
        resets=_mean(closed, lambda life: life.was_cut or False),
        **cadence(start for place in source.places for start in place.starts),
    )


def _connections_per_id(source: Source) -> float:
    known = [place.ids_per_connection for place in source.places if place.ids_per_connection is not None]
    return len(known) / sum(known) if known else nan


def growing_ids(user: UserPicture, window: Window) -> int:
    """Return the new ids of places where one producer after the other starts, up to now, and none has ended."""
    return sum(place.new_ids for place in user.places if _grows(place, window.to_ms))


def _grows(place: Place, now_ms: int) -> bool:
    starts_ms = sorted(start.at_ms for start in place.starts)
    gaps_ms = sorted(later - sooner for sooner, later in pairwise(starts_ms))
    if len(gaps_ms) < FEWEST_STARTS:
        return False
    usual_ms = gaps_ms[len(gaps_ms) // 2]
    is_going_on = now_ms - starts_ms[-1] <= max(GROWS_ON_MS, 3 * usual_ms)
    are_open = all(life.requests is None and life.end_ms >= now_ms for life in place.lives)
    return are_open and is_going_on and usual_ms >= ONE_AFTER_THE_OTHER_MS


def user_features(user: UserPicture, momentary_ids: int) -> UserFeatures:
    """Return the features of a whole user. `momentary_ids`: new ids of producers that should have been closed."""
    return UserFeatures(
        allocated_ids=user.allocated_ids,
        unused_ids=user.unused_ids,
        used_ids=user.used_ids,
        transactional_ids=user.transactional_ids,
        bumped_ids=user.bumped_ids,
        partitions=nan if user.partitions is None else user.partitions.mean,
        states=nan if user.partitions is None else user.partitions.total * user.one_in,
        new_ids=user.new_ids,
        after_refusal_ids=user.after_refusal_ids,
        open_connections=user.open_connections,
        momentary_ids=momentary_ids,
    )


def app_features(places: Sequence[Place], span: Span) -> tuple[AppFeatures, dict[str, str | None]]:
    """Return the features of an application's calm places, plus address and client id of its largest crowds."""
    lives = [life for place in places for life in place.lives]
    late = [life for life in lives if (life.started_ms or 0) > span.head_until_ms]
    over = [life for life in lives if life.gone_ms < span.open_from_ms]
    long_lived = [life for life in lives if _stay_ms(life) >= span.long_ms]
    at_address = _largest_crowd(
        [place for place in places if place.address],
        lambda place: place.address,
        lambda alike: sum(p.names for p in alike),
    )
    at_client_id = _largest_crowd(
        [place for place in places if place.names == 1],
        lambda place: place.client_ids,
        lambda alike: len({place.address for place in alike}),
    )
    features = AppFeatures(
        ids=_ids(lives),
        new_ids=sum(place.new_ids for place in places) - _ids(life for life in lives if life.refused),
        late_ids=_ids(late),
        late_long=_mean(late, lambda life: _stay_ms(life) >= span.long_ms),
        over_life_ms=_geometric_mean(over, _stay_ms),
        long_ids=_ids(long_lived),
        long_time=_sum(long_lived, _stay_ms) / max(1, _sum(lives, _stay_ms)),
        alive=_sum(lives, _stay_ms) / _active_ms(lives, _GONE_MS),
        starts_rhythm=_rhythm(late, lambda life: life.seen_ms),
        ends_rhythm=_rhythm(over, _GONE_MS),
        met_at_address=at_address.met,
        alive_at_address=at_address.alive,
        met_at_client_id=at_client_id.met,
        alive_at_client_id=at_client_id.alive,
        **_sessions(lives, span),
    )
    return features, {"crowd_address": at_address.key, "crowd_client_id": at_client_id.key}


@dataclass(frozen=True, slots=True, order=True)
class _Crowd:
    met: float = 0
    alive: float = 0.0
    key: str = ""


def _largest_crowd(
    places: Iterable[Place], key: Callable[[Place], str], met: Callable[[list[Place]], int]
) -> _Crowd:
    """Return the crowd at the address (or of the client id) with most members, and its concurrent lives."""
    by_key: dict[str, list[Place]] = {}
    for place in places:
        by_key.setdefault(key(place), []).append(place)
    crowds = []
    for name, alike in by_key.items():
        lives = [life for place in alike for life in place.lives]
        crowds.append(_Crowd(met(alike), _sum(lives, _stay_ms) / _active_ms(lives, _GONE_MS), name))
    return max(crowds, default=_Crowd())


def _sessions(lives: Sequence[Life], span: Span) -> dict[str, float]:
    """Return the features of groups of starts, computed as in pipeline/offenders/apps.sql."""
    gap_ms = span.session_gap_ms
    minute_ms = max(1, min(60_000, gap_ms // 10))
    moments = [(life.seen_ms // minute_ms * minute_ms, 1, 0) for life in lives]
    moments += [
        (life.gone_ms // minute_ms * minute_ms, 0, 1) for life in lives if life.gone_ms < span.open_from_ms
    ]
    sessions: list[_Session] = []
    alive, start_ms = 0, None
    for at_ms, alike in groupby(sorted(moments), key=lambda moment: moment[0]):
        rows = list(alike)
        starts, ends = sum(row[1] for row in rows), sum(row[2] for row in rows)
        if starts and (start_ms is None or at_ms - start_ms > gap_ms):
            sessions.append(_Session(at_ms, before=alive))
        if starts:
            start_ms = at_ms
        alive += starts - ends
        if sessions and start_ms is not None:
            sessions[-1].add(starts, ends if at_ms - start_ms <= gap_ms / 2 else 0, alive)
    later = [session for session in sessions if session.at_ms > span.head_until_ms]
    if not later:
        return {}
    replaced = [session for session in later if session.is_replacement]
    return {
        "sessions": len(later),
        "replacements": len(replaced),
        "replaced_ids": sum(session.starts for session in replaced),
        "instances": max((session.starts for session in replaced), default=nan),
        "growths": sum(session.ends < REPLACED * session.starts for session in later),
        "alive_most": max(session.most for session in later),
        "alive_least": min(session.least for session in later),
    }


@dataclass(slots=True)
class _Session:
    at_ms: int
    before: int
    starts: int = 0
    ends: int = 0
    most: float = -math.inf
    least: float = math.inf

    def add(self, starts: int, ends: int, alive: int) -> None:
        self.starts += starts
        self.ends += ends
        self.most, self.least = max(self.most, alive), min(self.least, alive)

    @property
    def is_replacement(self) -> bool:
        gone = min(self.ends, self.before)  # an instance missing before cannot have been replaced
        return (
            self.starts >= FEWEST_INSTANCES
            and gone >= REPLACED * self.starts
            and self.starts >= REPLACED * self.before
        )


def _life_ms(life: Life) -> int:
    return max(0, life.end_ms - life.seen_ms)


def _stay_ms(life: Life) -> int:
    """Return how long the process of a producer was there."""
    return max(0, life.gone_ms - life.seen_ms)


def _active_ms(lives: Sequence[Life], end: Callable[[Life], int] = attrgetter("end_ms")) -> int:
    """Return the time from the first sight to the last `end`."""
    return max(1, max(map(end, lives)) - min(life.seen_ms for life in lives)) if lives else 1


# Each life counts for all ids for which it stands.


def _ids(lives: Iterable[Life]) -> int:
    return sum(life.one_in for life in lives)


def _sum(lives: Iterable[Life], of: Callable[[Life], float]) -> float:
    return sum(life.one_in * of(life) for life in lives)


def _mean(lives: Sequence[Life], of: Callable[[Life], float]) -> float:
    return _sum(lives, of) / _ids(lives) if lives else nan


def _geometric_mean(lives: Sequence[Life], of: Callable[[Life], int]) -> float:
    return math.exp(_mean(lives, lambda life: math.log(max(1, of(life)))))


def _rhythm(lives: Sequence[Life], at_ms: Callable[[Life], int]) -> float:
    def turn(life: Life) -> float:
        return at_ms(life) % DAY_MS * math.tau / DAY_MS

    return math.hypot(
        _mean(lives, lambda life: math.cos(turn(life))), _mean(lives, lambda life: math.sin(turn(life)))
    )
