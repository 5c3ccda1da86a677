"""From sums to a picture: medians, lives, places by weight, the quota in force. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pidgate.events.definitions import ConfigEvent
from pidgate.findings.cadence import Start
from pidgate.quota.entities import EffectiveQuota, resolve
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.who.bounded import Names, spread
from pidgate.who.coverage import Coverage, coverage
from pidgate.who.id_marks import Mark
from pidgate.who.picture import Life, Named, Picture, Place, QuotaShown, SharedId, UserPicture, Window
from pidgate.who.span import Span
from pidgate.who.tally import UNUSED_AFTER_MS, Tally
from pidgate.who.user_tally import ConnectionTally, IdTally, PlaceTally, UserTally

TOP_NAMES: Final = 5
COMES_BACK_WITHIN_MS: Final = 30_000
"""After its throttle: longer than any client's back-off between retries."""
GONE_AFTER_MS: Final = 90_000
"""A gateway tells every 30 s that it lives."""
LONG_LIFE_MS: Final = 30 * 60_000
"""A producer that lives this long is long-lived; in a window under an hour, half the window."""


def user_pictures(tally: Tally, window: Window, file_quotas: Quotas | None) -> tuple[UserPicture, ...]:
    """Return all users, those with the most new ids first."""
    quotas = _quotas_in_force(_configs(tally, window), file_quotas)
    painted = [_paint(user, tally, window, quotas) for user in tally.users.values()]
    seen = [user for user in painted if user.used_ids or user.allocated_ids or user.new_ids]
    return tuple(sorted(seen, key=lambda user: (-user.new_ids, -user.used_ids, user.user)))


def picture_of(
    tally: Tally, topic: str, span: Span, asked_from_ms: int, unreadable: int, file_quotas: Quotas | None
) -> Picture:
    """Return the whole picture. `file_quotas` apply if no gateway's config event is within the window."""
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
        notes=tuple(_notes(tally, users, window, file_quotas)),
        shared_ids=tuple(shared_ids(tally)),
    )


def _notes(
    tally: Tally, users: Sequence[UserPicture], window: Window, file_quotas: Quotas | None
) -> Iterator[str]:
    if window.from_ms > window.given_from_ms and tally.events:
        yield "What was read begins within the time asked for: nothing is known from before."
    if not tally.configs and file_quotas is None and users:
        yield "Quotas are unknown: no gateway wrote them within this time. Name the gateway's file with --config."
    written = [quotas_of(event) for event in _configs(tally, window).values()]
    if written and not _running(tally, window):
        yield "No gateway runs: the quotas are those of the one that wrote last."
    elif any(quotas != written[0] for quotas in written):
        yield "The gateways' quotas differ; those of the one that wrote them last are shown."
    sampled = [user for user in users if user.one_in > 1]
    if sampled:
        most = max(user.one_in for user in sampled)
        yield f"Lives and requests per id of users with very many ids come from a sample, down to 1 id in {most}."


def _running(tally: Tally, window: Window) -> frozenset[str]:
    """Return the gateways that have not stopped, and said something lately."""
    since_ms = window.to_ms - GONE_AFTER_MS
    return frozenset(
        name
        for name, last_ms in tally.heard_ms.items()
        if last_ms >= since_ms and last_ms > tally.stopped_ms.get(name, 0)
    )


def _configs(tally: Tally, window: Window) -> Mapping[str, ConfigEvent]:
    """Return the newest quotas of the running gateways; of all if none runs."""
    running = _running(tally, window)
    return {name: event for name, event in tally.configs.items() if name in running} or tally.configs


def shared_ids(tally: Tally) -> Iterator[SharedId]:
    """Yield ids that several users produced with."""
    users_of: dict[int, list[str]] = {}
    for user in tally.users.values():
        for producer_id, detail in user.ids.items():
            if detail.used:
                users_of.setdefault(producer_id, []).append(user.name)
    for producer_id, users in sorted(users_of.items()):
        if len(users) > 1:
            yield SharedId(producer_id, tuple(sorted(users)))


def coverage_of(tally: Tally) -> Coverage | None:
    """Return the share of allocated ids that passed; lost and summed-up events may hide some of them."""
    lost = sum(lost.events for lost in tally.sequences.lost())
    return coverage(tally.marks, tally.first_allocation_ms, tally.summed_allocations, lost)


def quotas_of(event: ConfigEvent) -> Quotas:
    """Return the quotas of users in a config event."""
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
        gave_up=_gave_up(user, tally, window),
        after_refusal_ids=len(user.replaced),
        unprompted_ids=user.admitted - user.admitted_after,
        open_connections=max(0, user.connections_open),
        client_ids=_named(user.client_ids),
        software=_named(user.software),
        addresses=_named(user.addresses),
        ids_per_connection=spread(connection.ids for connection in user.connections),
        life_ms=spread(_lives(details, window)),
        requests=spread(one.requests for one in over),
        records=spread(one.records for one in over),
        partitions=spread(one.partitions for one in over),
        open_ids=sum(map(_is_open, details)) * one_in,
        one_in=one_in,
        quota=_quota(user.name, quotas),
        places=_places(user, details, window),
    )


def long_life_ms(window: Window) -> int:
    return min(LONG_LIFE_MS, window.length_ms // 2)


def _unused(user: UserTally, tally: Tally, window: Window) -> int:
    since_ms = window.to_ms - UNUSED_AFTER_MS
    recent = sum(
        at_ms > since_ms and not tally.marks.of(producer_id) & Mark.USED for at_ms, producer_id in user.recent
    )
    return max(0, user.allocated - user.allocated_for_transactions - user.allocated_and_used - recent)


def _gave_up(user: UserTally, tally: Tally, window: Window) -> int:
    """Count refused ids that were never admitted, without those that may still come back."""
    since_ms = window.to_ms - COMES_BACK_WITHIN_MS
    may_return = sum(
        until_ms > since_ms and not tally.marks.of(producer_id) & Mark.ADMITTED
        for producer_id, until_ms in user.waiting.items()
    )
    return max(0, user.never_admitted - may_return)


def _quota(user: str, quotas: tuple[Quotas, str] | None) -> QuotaShown | None:
    if quotas is None:
        return None
    in_force, source = quotas
    # The empty name was once that of all unidentified users, without a quota.
    quota = resolve(in_force, user) if user else EffectiveQuota(None, Mode.OBSERVE, False)
    return QuotaShown(quota, in_force.producer_ids.window_ms, source)


def _named(names: Names) -> Named:
    return Named(tuple(names.top(TOP_NAMES)), len(names), names.unnamed > 0)


def _is_open(one: IdTally) -> bool:
    """Return whether an id is in use: used and not reported yet. Usage is reported when its connections close."""
    return one.used and one.last_ms < 0 and not one.refused and one.closed is None


def _life_ms(one: IdTally, window: Window) -> int | None:
    if one.last_ms >= 0:
        return max(0, one.last_ms - one.first_ms)
    return max(0, window.to_ms - one.first_ms) if _is_open(one) else None


def _lives(details: Iterable[IdTally], window: Window) -> list[int]:
    return [life for one in details if (life := _life_ms(one, window)) is not None]


def _long_lived(details: Iterable[IdTally], window: Window, long_ms: int) -> int:
    """Count ids that lived long within the window, and those in use that were known from before it."""
    return sum(
        (life := _life_ms(one, window)) is not None and (life >= long_ms or (one.used and one.started_ms < 0))
        for one in details
    )


def _places(user: UserTally, details: list[IdTally], window: Window) -> tuple[Place, ...]:
    ids: dict[int, list[IdTally]] = {}
    for one in details:
        ids.setdefault(id(one.place), []).append(one)
    connections: dict[int, list[ConnectionTally]] = {}
    for connection in user.connections:
        connections.setdefault(id(connection.place), []).append(connection)
    places = [
        _place(place, user, ids.get(id(place), ()), connections.get(id(place), ()), window)
        for place in user.places.values()
    ]
    return tuple(sorted(places, key=lambda place: (-place.new_ids, place.address, place.client_ids)))


def _place(
    place: PlaceTally,
    user: UserTally,
    details: Collection[IdTally],
    connections: Sequence[ConnectionTally],
    window: Window,
) -> Place:
    names = place.names.top(1)
    kept = place.ids.values()
    details, one_in = (kept, 1) if place.is_whole else (details, user.ids.one_in)
    return Place(
        address=place.address,
        family=place.family,
        client_ids=names[0][0] if len(place.names) == 1 else place.family,
        names=len(place.names),
        software=place.software,
        new_ids=place.new_ids,
        starts=tuple(Start(one.started_ms, _gone_ms(one, window)) for one in kept if one.started_ms >= 0),
        lives=tuple(_life(one, window, one_in) for one in details if one.used),
        ids_per_connection=sum(one.ids for one in connections) / len(connections) if connections else None,
    )


def _life(one: IdTally, window: Window, one_in: int) -> Life:
    is_reported = one.last_ms >= 0
    has_failed = is_reported and one.error_ms >= one.last_ms
    return Life(
        started_ms=one.started_ms if one.started_ms >= 0 else None,
        seen_ms=one.started_ms if one.started_ms >= 0 else one.first_ms,
        end_ms=_end_ms(one, window),
        gone_ms=_gone_ms(one, window),
        was_cut=None if one.closed is None else one.closed[1],
        requests=one.requests if is_reported else None,
        refused=one.refused,
        failed=has_failed,
        error_code=one.error_code if one.error_ms >= 0 else None,
        transactional=one.transactional,
        name=one.name,
        one_in=one_in,
    )


def _end_ms(one: IdTally, window: Window) -> int:
    seen_ms = max(one.started_ms, one.first_ms)
    return max(seen_ms, one.last_ms, window.to_ms if _is_open(one) else 0)


def _gone_ms(one: IdTally, window: Window) -> int:
    """Return when its process ended."""
    return max(_end_ms(one, window), one.closed[0] if one.closed is not None else 0)
