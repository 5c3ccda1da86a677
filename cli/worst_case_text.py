"""The worst case of a file's quotas in words, with its arithmetic. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pidgate.cli.worst_case import Share, Unbounded, WorstCase, ceiling_that_fits
from pidgate.quota.settings import ProducerIdSettings
from pidgate.units import about_size, show_duration, show_milli, show_size

MOST_SHOWN: Final = 10
_WHY: Final = {
    Unbounded.OBSERVED: "observed, not enforced",
    Unbounded.EXEMPT: "exempt",
    Unbounded.NO_LIMIT: "no limit",
}


def in_words(worst: WorstCase, ids: ProducerIdSettings, *, shares_quota: bool) -> Iterator[str]:
    """Line by line; without warnings. `shares_quota`: several gateways of a cluster hold one quota together."""
    expiry = show_duration(worst.assumed.expiry_ms)
    yield f"Worst case on the brokers, within their producer.id.expiration.ms ({expiry}):"
    yield from _users(worst, ids)
    if not worst.ids and worst.unbounded and not worst.ids_at_ceiling:
        yield "  No number can be given: nothing is refused to anybody who brings producer ids."
        return
    yield from _states(worst)
    yield from _beyond(worst, shares_quota=shares_quota)


def warnings(worst: WorstCase, ids: ProducerIdSettings) -> Iterator[str]:
    """What a given heap is too small for."""
    heap_bytes = worst.assumed.heap_bytes
    if heap_bytes is None:
        return
    if worst.exceeds_heap:
        fits = ceiling_that_fits(worst, ids)
        remedy = f", or write cluster_producer_ids_rate: {fits}, which fits" if fits else ""
        yield (
            f"{about_size(worst.heap_bytes)} of producer states exceed the heap given ({show_size(heap_bytes)}); "
            f"lower the rates{remedy}"
        )
    if worst.unbounded:
        yield "nothing bounds the ids of some users (named above), so no heap is surely enough"


def _users(worst: WorstCase, ids: ProducerIdSettings) -> Iterator[str]:
    bounded = [share for share in worst.shares if share.unbounded is None]
    bounded.sort(key=lambda share: -(share.ids or 0) * share.users)
    for share in bounded[:MOST_SHOWN]:
        yield f"  {_who(share)}: {_arithmetic(share, worst, ids)}"
    left = bounded[MOST_SHOWN:]
    if left:
        yield f"  {len(left)} users more: {sum((share.ids or 0) * share.users for share in left):,} ids"
    if worst.unbounded:
        names = [f"{share.who} ({_WHY[share.unbounded]})" for share in worst.unbounded if share.unbounded]
        more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
        yield f"  Nothing bounds the ids of: {', '.join(names[:MOST_SHOWN])}{more}."
    if worst.ids_of_users is not None and len(bounded) > 1:
        yield f"  These users together: {worst.ids_of_users:,} ids"
    if worst.ids_at_ceiling is not None:
        yield f"  cluster_producer_ids_rate, over all who are enforced: {worst.ids_at_ceiling:,} ids at most"


def _who(share: Share) -> str:
    return f"{share.who} ({share.users} assumed)" if share.who == "users not named" else share.who


def _arithmetic(share: Share, worst: WorstCase, ids: ProducerIdSettings) -> str:
    if share.ids is None:
        return "no limit of its own"
    if not share.rate_milli:
        return "blocked: 0 ids"
    rate, expiry = show_milli(share.rate_milli), show_duration(worst.assumed.expiry_ms)
    burst = show_milli(int(ids.burst * 1_000))
    each = f"{burst} x {rate} + {rate} x {expiry} / {show_duration(ids.window_ms)} + 1 = {share.ids:,} ids"
    return each if share.users == 1 else f"{each} each, {share.ids * share.users:,} ids"


def _states(worst: WorstCase) -> Iterator[str]:
    assumed = worst.assumed
    yield (
        f"  {worst.ids:,} ids x {assumed.partitions_per_id} partitions x {worst.replicas} replicas "
        f"= {worst.states:,} states; / {assumed.brokers} brokers = {worst.states_per_broker:,} on each"
    )
    yield (
        f"  {worst.states_per_broker:,} states x {assumed.bytes_per_state} bytes "
        f"= {about_size(worst.heap_bytes)} of heap on each broker"
    )
    yield (
        f"  Assumed: --partitions-per-id {assumed.partitions_per_id}, --replication-factor "
        f"{assumed.replication_factor}, --brokers {assumed.brokers}, --expiry {show_duration(assumed.expiry_ms)}, "
        f"--bytes-per-state {assumed.bytes_per_state}, --users {assumed.unnamed_users}"
    )


def _beyond(worst: WorstCase, *, shares_quota: bool) -> Iterator[str]:
    """What the number does not hold, plainly."""
    yield "  On top: ids that have been in use for longer (producers that really run), and users who"
    yield "  cannot be identified."
    if not worst.transactional_is_bounded:
        yield "  Transactional producers are not refused (producer_ids.transactional: observe): nothing bounds them."
    if worst.grace_ids is None:
        yield "  In the grace after a cold start nothing bounds users without a rate of their own."
    elif worst.grace_ids:
        yield f"  The grace after a cold start lets in {worst.grace_ids:,} ids more, once."
    if not shares_quota:
        yield "  Without the events topic each gateway counts for itself: with n gateways it is n times as much."
