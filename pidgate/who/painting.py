"""From sums to a picture: medians, lives, places by weight, the quota in force. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pidgate.events.definitions import ConfigEvent
from pidgate.quota.entities import EffectiveQuota, resolve
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.who.bounded import Names, spread
from pidgate.who.coverage import Coverage, coverage
from pidgate.who.id_marks import Mark
from pidgate.who.picture import Named, Picture, Place, QuotaShown, UserPicture, Window
from pidgate.who.span import Span
from pidgate.who.tally import UNUSED_AFTER_MS, Tally
from pidgate.who.user_tally import ConnectionTally, IdTally, PlaceTally, UserTally

TOP_NAMES: Final = 5
LONG_LIFE_MS: Final = 30 * 60_000
"""A producer that lives this long is long-lived; in a window under an hour, half the window."""

FEWEST_NUMBERS: Final = 3
NUMBERS_SPREAD: Final = 3
"""Numbers that were counted lie within three times as many; process ids and random ones do not."""
# Nine digits are more than any counter of producers, and less than a time in milliseconds.
_LAST_NUMBER: Final = re.compile(r"(?<![0-9])[0-9]{1,9}$")


def user_pictures(tally: Tally, window: Window, file_quotas: Quotas | None) -> tuple[UserPicture, ...]:
    """Return all users, those with the most new ids first."""
    quotas = _quotas_in_force(tally.configs, file_quotas)
    painted = [_paint(user, tally, window, quotas) for user in tally.users.values()]
    seen = [user for user in painted if user.used_ids or user.allocated_ids or user.new_ids]
    return tuple(sorted(seen, key=lambda user: (-user.new_ids, -user.used_ids, user.user)))


def picture_of(
    tally: Tally, topic: str, span: Span, asked_from_ms: int, unreadable: int, file_quotas: Quotas | None
) -> Picture:
    """Return the whole picture. `file_quotas` hold where no gateway's config event is within the window."""
    window = Window(span.from_ms, span.to_ms, asked_from_ms)
    users = user_pictures(tally, window, file_quotas)
    return Picture(
        topic=topic,
        cluster=tally.cluster,
        window=window,
        events=tally.events,
        duplicates=tally.duplicates,
        unreadable=unreadable,
        gateways=tuple(tally.gateways),
        users=users,
        users_beyond=tally.users_beyond,
        lost=tuple(tally.sequences.lost()),
        coverage=coverage_of(tally),
        ids_beyond=tally.marks.beyond,
        notes=tuple(_notes(tally, users, span, asked_from_ms, file_quotas)),
    )


def _notes(
    tally: Tally, users: Sequence[UserPicture], span: Span, asked_from_ms: int, file_quotas: Quotas | None
) -> Iterator[str]:
    if span.from_ms > asked_from_ms and tally.events:
        yield "The topic begins within the time asked for: nothing is known from before."
    if not tally.configs and file_quotas is None and users:
        yield "Quotas are unknown: no gateway wrote them within this time. Name the gateway's file with --config."
    written = [quotas_of(event) for event in tally.configs.values()]
    if any(quotas != written[0] for quotas in written):
        yield "The gateways' quotas differ; those of the one that wrote them last are shown."
    sampled = [user for user in users if user.one_in > 1]
    if sampled:
        most = max(user.one_in for user in sampled)
        yield f"Lives and requests per id of users with very many ids come from a sample, down to 1 id in {most}."


def coverage_of(tally: Tally) -> Coverage | None:
    """Return the share of ids handed out that passed; what is lost or summed up may hide some of it."""
    lost = sum(lost.events for lost in tally.sequences.lost())
    return coverage(tally.marks, tally.first_allocation_ms, tally.summed_allocations, lost)


def quotas_of(event: ConfigEvent) -> Quotas:
    """Return the quotas of a config event, as far as users are concerned."""
    return Quotas(
        mode=Mode(event.mode),
        producer_ids=ProducerIdSettings(window_ms=event.window_ms, transactional=Mode(event.transactional)),
        default=UserQuota(event.default_rate_milli),
        users={
            one.user: UserQuota(one.rate_milli, None if one.mode is None else Mode(one.mode), one.exempt)
            for one in event.quotas
        },
        cluster_rate_milli=event.cluster_rate_milli,
    )


def _quotas_in_force(
    configs: Mapping[str, ConfigEvent], file_quotas: Quotas | None
) -> tuple[Quotas, str] | None:
    if configs:
        newest = max(configs.values(), key=lambda event: event.wall_time_ms)
        return quotas_of(newest), newest.gateway_id
    return None if file_quotas is None else (file_quotas, "file")


def _paint(user: UserTally, tally: Tally, window: Window, quotas: tuple[Quotas, str] | None) -> UserPicture:
    details = list(user.ids)
    one_in = user.ids.one_in
    over = [one for one in details if one.last_ms >= 0]
    long_ms = long_life_ms(window)
    return UserPicture(
        user=user.name,
        new_ids=user.new,
        admitted_ids=user.admitted,
        refused_ids=user.refused,
        never_admitted_ids=user.never_admitted,
        would_refuse_ids=user.would_refuse,
        allocated_ids=user.allocated,
        unused_ids=_unused(user, tally, window),
        used_ids=user.used,
        transactional_ids=user.transactional,
        bumped_ids=user.bumped,
        long_lived_ids=_long_lived(details, window, long_ms) * one_in,
        gave_up=user.gave_up,
        suppressed_refusals=user.suppressed,
        client_ids=_named(user.client_ids),
        software=_named(user.software),
        addresses=_named(user.addresses),
        ids_per_connection=spread(connection.ids for connection in user.connections),
        life_ms=spread(_lives(details, window)),
        requests=spread(one.requests for one in over),
        records=spread(one.records for one in over),
        open_ids=sum(map(_is_open, details)) * one_in,
        one_in=one_in,
        quota=_quota(user.name, quotas),
        places=_places(user, details, one_in, window),
    )


def long_life_ms(window: Window) -> int:
    return min(LONG_LIFE_MS, window.length_ms // 2)


def _unused(user: UserTally, tally: Tally, window: Window) -> int:
    since_ms = window.to_ms - UNUSED_AFTER_MS
    recent = sum(
        at_ms > since_ms and not tally.marks.of(producer_id) & Mark.USED for at_ms, producer_id in user.recent
    )
    return max(0, user.allocated - user.allocated_and_used - recent)


def _quota(user: str, quotas: tuple[Quotas, str] | None) -> QuotaShown | None:
    if quotas is None:
        return None
    in_force, source = quotas
    # The empty name was that of everybody unidentified, who had no quota.
    quota = resolve(in_force, user) if user else EffectiveQuota(None, Mode.OBSERVE, False)
    return QuotaShown(quota, in_force.producer_ids.window_ms, source)


def _named(names: Names) -> Named:
    return Named(tuple(names.top(TOP_NAMES)), len(names), names.unnamed > 0)


def _is_open(one: IdTally) -> bool:
    """Return whether an id is in use: used and never reported, as it is when its connections close."""
    return one.used and one.last_ms < 0 and not one.refused


def _life_ms(one: IdTally, window: Window) -> int | None:
    if one.last_ms >= 0:
        return max(0, one.last_ms - one.first_ms)
    return max(0, window.to_ms - one.first_ms) if _is_open(one) else None


def _lives(details: Iterable[IdTally], window: Window) -> list[int]:
    return [life for one in details if (life := _life_ms(one, window)) is not None]


def _long_lived(details: Iterable[IdTally], window: Window, long_ms: int) -> int:
    """Count ids that lived long within the window, and those in use that were known from before it."""
    return sum(
        (life := _life_ms(one, window)) is not None and (life >= long_ms or (one.used and not one.new))
        for one in details
    )


def _places(user: UserTally, details: list[IdTally], one_in: int, window: Window) -> tuple[Place, ...]:
    ids: dict[int, list[IdTally]] = {}
    for one in details:
        ids.setdefault(id(one.place), []).append(one)
    connections: dict[int, list[ConnectionTally]] = {}
    for connection in user.connections:
        connections.setdefault(id(connection.place), []).append(connection)
    painted = [
        _place(place, ids.get(id(place), []), connections.get(id(place), []), one_in, window)
        for place in user.places.values()
    ]
    return tuple(sorted(painted, key=lambda place: (-place.new_ids, place.address, place.client_ids)))


def _place(
    place: PlaceTally,
    details: Sequence[IdTally],
    connections: Sequence[ConnectionTally],
    one_in: int,
    window: Window,
) -> Place:
    over = [one for one in details if one.last_ms >= 0]
    names = place.names.top(1)
    return Place(
        address=place.address,
        client_ids=names[0][0] if len(place.names) == 1 else place.client_ids,
        distinct_client_ids=len(place.names),
        counted_up=_are_counted_up(place.names),
        software=place.software,
        new_ids=place.new_ids,
        starts_ms=tuple(sorted(place.starts_ms)),
        requests=spread(one.requests for one in over),
        records=spread(one.records for one in over),
        life_ms=spread(_lives(details, window)),
        open_ids=sum(map(_is_open, details)) * one_in,
        peak_alive=_peak(details, window) * one_in,
        long_lived_ids=_long_lived(details, window, long_life_ms(window)) * one_in,
        unused_ids=sum(one.allocated and not one.used for one in details) * one_in,
        ids_per_connection=spread(connection.ids for connection in connections),
    )


def _are_counted_up(names: Names) -> bool:
    numbers = sorted({int(match[0]) for name in names if (match := _LAST_NUMBER.search(name))})
    return len(numbers) >= FEWEST_NUMBERS and numbers[-1] - numbers[0] < NUMBERS_SPREAD * len(numbers)


def _peak(details: Iterable[IdTally], window: Window) -> int:
    """Return the most ids in use at one moment."""
    edges = []
    for one in details:
        life_ms = _life_ms(one, window)
        if life_ms is not None:
            edges.append((one.first_ms, 1))
            edges.append((one.first_ms + life_ms, -1))
    alive = peak = 0
    # Equal moments: what ends goes first, so that ids one after another are never two at once.
    for _at_ms, step in sorted(edges):
        alive += step
        peak = max(peak, alive)
    return peak
