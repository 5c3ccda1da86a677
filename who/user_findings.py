"""What all places of a user have in common: deployments, steady producers, transactions, ids without use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from pidgate.who import wording
from pidgate.who.cadence import FEWEST_BURSTS, bursts_of, cadence
from pidgate.who.finding import Finding, Kind
from pidgate.who.picture import Place, UserPicture, Window
from pidgate.who.place_findings import BATCH_REQUESTS_P90, FEWEST_IDS, FEWEST_OVER, SHORT_LIFE_MS, backing_off
from pidgate.who.place_words import addresses, clients, each_used_for, from_places, ids_of
from pidgate.who.wording import counted

FEWEST_UNUSED: Final = 10
UNUSED_SHARE: Final = 0.25
FEWEST_SCATTERED: Final = 5
"""Addresses, before anything is said of all of them together."""
DEPLOY_IDS: Final = 10
DEPLOY_ADDRESSES: Final = 5
DEPLOY_IDS_PER_ADDRESS: Final = 4
DEPLOY_GAP_MS: Final = 10 * 60_000
"""Quiet for so long ends a deployment."""
DEPLOY_SPAN_MS: Final = 30 * 60_000
STEADY_SHORT_SHARE: Final = 0.1
"""Steady: new ids that are not long-lived are at most this share of the long-lived ones (or two)."""
STEADY_SHORT: Final = 2
TRANSACTIONAL_SHARE: Final = 0.5
BUMPED_SHARE: Final = 0.1


def scattered(user: UserPicture) -> Finding | None:
    """What no place shows, but all together do: every start, request or batch comes from another address."""
    places = [place for place in user.places if len(place.starts_ms) < FEWEST_BURSTS]
    number = len({place.address for place in places})
    if number < FEWEST_SCATTERED or user.transactional_ids > TRANSACTIONAL_SHARE * user.new_ids:
        return None
    where = f"from {number:,} addresses in turn ({clients(places)})"
    return _loop_in_turn(places, where) or _tasks_in_turn(user, where)


def _loop_in_turn(places: Sequence[Place], where: str) -> Finding | None:
    starts = sorted(start for place in places for start in place.starts_ms)
    beat = cadence(starts)
    if beat is None or any(map(_lives_on, places)):
        return None
    ids = ids_of(places)
    text = (
        f"restart loop every {wording.duration(beat.interval_ms)}{backing_off(beat)} {where}: "
        f"{counted(ids, 'id')}{each_used_for(places)}"
    )
    evidence = {"interval_ms": beat.interval_ms, "starts": beat.bursts, "ids_per_start": beat.per_burst}
    return Finding(Kind.RESTART_LOOP, text, ids, (), evidence)


def _tasks_in_turn(user: UserPicture, where: str) -> Finding | None:
    requests, life = user.requests, user.life_ms
    if user.new_ids < FEWEST_IDS or requests is None or requests.count < FEWEST_OVER:
        return None
    if life is None or life.median >= SHORT_LIFE_MS:
        return None
    ids, mean = user.new_ids, requests.total / requests.count
    if requests.median <= 1 and requests.p90 <= BATCH_REQUESTS_P90:
        text = f"one id per batch: {mean:.1f} requests per id, {counted(ids, 'id')} {where}"
        return Finding(Kind.ONE_ID_PER_BATCH, text, ids, (), {"requests_per_id": round(mean, 3)})
    text = (
        f"one producer per request or job: {counted(ids, 'id')} {where}, each in use for "
        f"{wording.duration(life.median)} and {counted(requests.median, 'request')}"
    )
    evidence = {"life_ms_median": life.median, "requests_median": requests.median}
    return Finding(Kind.PRODUCER_PER_TASK, text, ids, (), evidence)


def _lives_on(place: Place) -> bool:
    """Its producers stay: what was deployed runs, what is a job ends."""
    lived = place.life_ms is not None and place.life_ms.median >= SHORT_LIFE_MS
    return lived or 2 * place.open_ids >= max(1, len(place.starts_ms))


def unused(user: UserPicture) -> Finding | None:
    """Producers are opened and never send: each costs an id, though no state at the brokers' partitions."""
    if user.unused_ids < max(FEWEST_UNUSED, UNUSED_SHARE * user.allocated_ids):
        return None
    places = sorted((place for place in user.places if place.unused_ids), key=lambda place: -place.unused_ids)
    where = f" {from_places(places)}" if places else ""
    text = (
        f"ids without use: {user.unused_ids:,} of {counted(user.allocated_ids, 'id')} were handed out "
        f"(InitProducerId) and never produced with{where}"
    )
    evidence = {"unused_ids": user.unused_ids, "allocated_ids": user.allocated_ids}
    return Finding(Kind.UNUSED_IDS, text, user.unused_ids, addresses(places), evidence)


def transactional(user: UserPicture) -> Finding | None:
    """Mostly transactions: with a stable transactional.id (epochs go up), or a new one each time."""
    ids = user.transactional_ids
    if not ids or ids < TRANSACTIONAL_SHARE * max(user.used_ids, user.allocated_ids):
        return None
    evidence = {"transactional_ids": ids, "bumped_ids": user.bumped_ids}
    short = user.life_ms is not None and user.life_ms.median < SHORT_LIFE_MS
    if min(ids, user.new_ids) >= FEWEST_IDS and user.bumped_ids <= BUMPED_SHARE * ids and short:
        text = (
            f"a new transactional.id at each start: {counted(ids, 'id')}, {user.bumped_ids:,} of them taken up "
            "again"
        )
        return Finding(Kind.NEW_TRANSACTIONAL_IDS, text, ids, (), evidence)
    bumps = f"epoch bumps on {user.bumped_ids:,}" if user.bumped_ids else "no epoch bumps"
    return Finding(Kind.TRANSACTIONAL, f"transactional: {counted(ids, 'id')}, {bumps}", ids, (), evidence)


def deploy(places: Sequence[Place], window: Window, zone: tzinfo | None) -> Finding | None:
    """Many addresses, each bringing an id or a few, within half an hour, and then quiet."""
    starts = sorted((start, place.address) for place in places for start in place.starts_ms)
    spans = bursts_of([start for start, _ in starts], DEPLOY_GAP_MS)
    found = []
    for span in spans:
        there = {address for start, address in starts if span[0] <= start <= span[-1]}
        if _looks_deployed(span, there):
            found.append((len(span), len(there), span[0], span[-1]))
    if not found or 2 * sum(map(_lives_on, places)) < len(places):
        return None
    ids, addresses_count, first_ms, last_ms = max(found)
    quiet = "then quiet" if window.to_ms - last_ms >= DEPLOY_GAP_MS else "maybe still going on"
    more = f" ({len(found)} deployments, this is the largest)" if len(found) > 1 else ""
    text = (
        f"deploy: {counted(ids, 'id')} at {wording.clock(first_ms, zone)} from {addresses_count:,} addresses, "
        f"{quiet}{more}"
    )
    evidence = {
        "addresses": addresses_count,
        "first_ms": first_ms,
        "last_ms": last_ms,
        "deployments": len(found),
    }
    return Finding(Kind.DEPLOY, text, ids, (), evidence)


def _looks_deployed(span: Sequence[int], addresses: set[str]) -> bool:
    return (
        len(span) >= DEPLOY_IDS
        and len(addresses) >= DEPLOY_ADDRESSES
        and len(span) <= DEPLOY_IDS_PER_ADDRESS * len(addresses)
        and span[-1] - span[0] <= DEPLOY_SPAN_MS
    )


def steady(user: UserPicture, deployed_ids: int) -> Finding | None:
    """Few producers that live long, and hardly anything beside them but a deployment."""
    settled = max(deployed_ids, user.long_lived_ids - user.returned_ids)
    passing = user.new_ids - settled
    if not user.long_lived_ids or passing > max(STEADY_SHORT, STEADY_SHORT_SHARE * user.long_lived_ids):
        return None
    text = f"steady: {counted(user.long_lived_ids, 'long-lived producer')}"
    return Finding(Kind.STEADY, text, user.long_lived_ids, (), {"long_lived_ids": user.long_lived_ids})


def no_pattern(user: UserPicture) -> Finding:
    """Said when nothing else can be."""
    ids = user.new_ids or user.used_ids or user.allocated_ids
    what = "new id" if user.new_ids else "id"
    text = f"{counted(ids, what)} from {counted(user.addresses.names, 'address', 'addresses')}: no pattern stands out"
    return Finding(Kind.NO_PATTERN, text, ids)
