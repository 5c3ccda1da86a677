"""Findings about all places of a user: deployments, steady producers, transactions, ids without use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from pidgate.events.patterns import Pattern
from pidgate.units import clock, counted
from pidgate.who.cadence import FEWEST_BURSTS, bursts_of, cadence
from pidgate.who.finding import Finding, sentence
from pidgate.who.picture import Place, UserPicture, Window
from pidgate.who.place_findings import (
    BATCH_REQUESTS_P90,
    FEWEST_IDS,
    FEWEST_OVER,
    SHORT_LIFE_MS,
    loop_finding,
    task_finding,
)
from pidgate.who.words import addresses, clients

FEWEST_UNUSED: Final = 10
UNUSED_SHARE: Final = 0.25
FEWEST_SCATTERED: Final = 5
"""Addresses, before anything is found of all of them together."""
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
    """Return what all places show together and none alone: each start, request or batch has another address."""
    places = [place for place in user.places if len(place.starts_ms) < FEWEST_BURSTS]
    number = len({place.address for place in places})
    if number < FEWEST_SCATTERED or user.transactional_ids > TRANSACTIONAL_SHARE * user.new_ids:
        return None
    who = clients(places, f"{number:,} addresses in turn")
    beat = cadence(sorted(start for place in places for start in place.starts_ms))
    if beat is not None and not any(map(_lives_on, places)):
        return loop_finding(places, beat, who, ())
    return _tasks_in_turn(user, who)


def _tasks_in_turn(user: UserPicture, who: dict[str, str]) -> Finding | None:
    requests, life = user.requests, user.life_ms
    if user.new_ids < FEWEST_IDS or requests is None or requests.count < FEWEST_OVER:
        return None
    if life is None or life.median >= SHORT_LIFE_MS:
        return None
    ids, mean = user.new_ids, requests.total / requests.count
    if requests.median <= 1 and requests.p90 <= BATCH_REQUESTS_P90:
        words = {**who, "new_ids": f"{ids:,}", "sent": f"{mean:.1f} requests per id"}
        text = sentence(Pattern.PRODUCER_PER_BATCH, words)
        return Finding(Pattern.PRODUCER_PER_BATCH, text, ids, (), {"requests_per_id": round(mean, 3)})
    return task_finding(who, ids, life.median, requests.median)


def _lives_on(place: Place) -> bool:
    """Return whether the producers of a place stay: what was deployed runs, what is a job ends."""
    lived = place.life_ms is not None and place.life_ms.median >= SHORT_LIFE_MS
    return lived or 2 * place.open_ids >= max(1, len(place.starts_ms))


def unused(user: UserPicture) -> Finding | None:
    """Find producers that never send: each costs an id, though no state at the brokers' partitions."""
    if user.unused_ids < max(FEWEST_UNUSED, UNUSED_SHARE * user.allocated_ids):
        return None
    places = sorted((place for place in user.places if place.unused_ids), key=lambda place: -place.unused_ids)
    words = {"unused": f"{user.unused_ids:,}", "allocated": counted(user.allocated_ids, "id")}
    text = sentence(Pattern.UNUSED_IDS, {**clients(places), **words})
    evidence = {"unused_ids": user.unused_ids, "allocated_ids": user.allocated_ids}
    return Finding(Pattern.UNUSED_IDS, text, user.unused_ids, addresses(places), evidence)


def transactional(user: UserPicture) -> Finding | None:
    """Find a user of mostly transactions: with a stable transactional.id (epochs go up), or a new one each time."""
    ids = user.transactional_ids
    if not ids or ids < TRANSACTIONAL_SHARE * max(user.used_ids, user.allocated_ids):
        return None
    evidence = {"transactional_ids": ids, "bumped_ids": user.bumped_ids}
    short = user.life_ms is not None and user.life_ms.median < SHORT_LIFE_MS
    who = clients(user.places)
    if min(ids, user.new_ids) >= FEWEST_IDS and user.bumped_ids <= BUMPED_SHARE * ids and short:
        words = {**who, "new_ids": f"{ids:,}", "kept": f"{user.bumped_ids:,} of them taken up again"}
        text = sentence(Pattern.RANDOM_TRANSACTIONAL_IDS, words)
        return Finding(Pattern.RANDOM_TRANSACTIONAL_IDS, text, ids, (), evidence)
    bumps = f"epoch bumps on {user.bumped_ids:,}" if user.bumped_ids else "no epoch bumps"
    text = sentence(Pattern.TRANSACTIONAL, {**who, "ids": counted(ids, "id"), "bumps": bumps})
    return Finding(Pattern.TRANSACTIONAL, text, ids, (), evidence)


def rolling_deployment(places: Sequence[Place], window: Window, zone: tzinfo | None) -> Finding | None:
    """Find many addresses that each bring an id or a few, within half an hour, and are quiet then."""
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
    replaced = f"{counted(ids, 'new id')} at {clock(first_ms, zone)}, {quiet}{more}"
    who = clients(places, f"{addresses_count:,} addresses")
    text = sentence(Pattern.ROLLING_DEPLOYMENT, {**who, "replaced": replaced})
    evidence = {
        "addresses": addresses_count,
        "first_ms": first_ms,
        "last_ms": last_ms,
        "deployments": len(found),
    }
    return Finding(Pattern.ROLLING_DEPLOYMENT, text, ids, (), evidence)


def _looks_deployed(span: Sequence[int], addresses: set[str]) -> bool:
    return (
        len(span) >= DEPLOY_IDS
        and len(addresses) >= DEPLOY_ADDRESSES
        and len(span) <= DEPLOY_IDS_PER_ADDRESS * len(addresses)
        and span[-1] - span[0] <= DEPLOY_SPAN_MS
    )


def steady(user: UserPicture, deployed_ids: int) -> Finding | None:
    """Find producers that live long, with hardly anything beside them but a deployment."""
    settled = max(deployed_ids, user.long_lived_ids - user.returned_ids)
    passing = user.new_ids - settled
    if not user.long_lived_ids or passing > max(STEADY_SHORT, STEADY_SHORT_SHARE * user.long_lived_ids):
        return None
    long_lived = counted(user.long_lived_ids, "long-lived producer")
    text = sentence(Pattern.STEADY, {**clients(user.places), "long_lived": long_lived, "beside": ""})
    return Finding(Pattern.STEADY, text, user.long_lived_ids, (), {"long_lived_ids": user.long_lived_ids})


def unknown(user: UserPicture) -> Finding:
    """Return the finding for a user that fits no other one."""
    ids = user.new_ids or user.used_ids or user.allocated_ids
    what = "new id" if user.new_ids else "id"
    where = counted(user.addresses.names, "address", "addresses")
    return Finding(
        Pattern.UNKNOWN, sentence(Pattern.UNKNOWN, {"ids": f"{counted(ids, what)} from {where}"}), ids
    )
