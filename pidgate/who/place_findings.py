"""Findings about the producers of one place: restart loops; producers per batch, task or thread. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pidgate.events.patterns import Pattern
from pidgate.units import about_duration, counted
from pidgate.who.cadence import Cadence, cadence
from pidgate.who.finding import Finding, sentence
from pidgate.who.picture import Place
from pidgate.who.user_tally import MOST_PLACE_NAMES
from pidgate.who.words import addresses, clients, ids_of, in_use_for, lived, mean

FEWEST_IDS: Final = 20
"""Below this many new ids a place is not worth a finding about batches, tasks or threads."""
FEWEST_OVER: Final = 10
"""Ids that are over, before anything is found about their use."""
BATCH_REQUESTS_P90: Final = 2
"""A producer per batch: half of the ids make one request, nine in ten at most this many."""
SHORT_LIFE_MS: Final = 60_000
"""A producer that lives less (median) was made for one task; one that lives longer, for a thread."""
THREADS: Final = 10
"""That many producers of one place at the same time are one per thread ..."""
THREADS_SHARE: Final = 0.5
"""... if they are at least this share of the place's ids."""
COUNTED_UP_SHARE: Final = 0.5
"""Client ids that are counted up (producer-1, producer-2) are made by one process: at least this share of the
new ids has a client id of its own. A process that starts anew begins at 1 again."""
LOOP_OVERLAP: Final = 2
"""In a restart loop at most this multiple of one start's ids is in use at once."""


# Restart loop: one process after another, at a beat.


def loop_of(place: Place) -> Cadence | None:
    """Return the beat of a place whose process starts again and again; None: there is none."""
    beat = cadence(place.starts_ms)
    if beat is None or is_counted_up(place):
        return None
    if place.peak_alive > LOOP_OVERLAP * beat.per_burst:
        return None
    # No connection outlives its process.
    shared = place.ids_per_connection is not None and place.ids_per_connection.p90 > beat.per_burst
    return None if shared else beat


def is_counted_up(place: Place) -> bool:
    """Return whether client ids are counted up, nearly one for each id: one process opens producer after producer."""
    starts = max(place.new_ids, len(place.starts_ms))
    return place.counted_up and place.distinct_client_ids >= COUNTED_UP_SHARE * min(starts, MOST_PLACE_NAMES)


def _is_loop(place: Place) -> bool:
    return loop_of(place) is not None


def _loop_words(places: Sequence[Place]) -> Finding:
    beats = [beat for place in places if (beat := loop_of(place)) is not None]
    return loop_finding(places, max(beats, key=lambda one: one.bursts), clients(places), addresses(places))


def loop_finding(
    places: Sequence[Place], beat: Cadence, who: dict[str, str], where: tuple[str, ...]
) -> Finding:
    """Return the finding of a restart loop with this beat, at these addresses."""
    ids = ids_of(places)
    words = {
        "bursts": f"{beat.bursts:,}",
        "interval": about_duration(beat.interval_ms),
        "backing_off": ", with growing pauses" if beat.backing_off else "",
        "new_ids": f"{ids:,}",
        "per_start": "" if beat.per_burst == 1 else f", {beat.per_burst} at each start",
        "lived": lived(places),
    }
    text = sentence(Pattern.RESTART_LOOP, {**who, **words})
    evidence = {"interval_ms": beat.interval_ms, "starts": beat.bursts, "ids_per_start": beat.per_burst}
    return Finding(Pattern.RESTART_LOOP, text, ids, where, evidence)


# A producer per batch.


def _is_per_batch(place: Place) -> bool:
    return (
        place.new_ids >= FEWEST_IDS
        and place.requests is not None
        and place.requests.count >= FEWEST_OVER
        and place.requests.median <= 1
        and place.requests.p90 <= BATCH_REQUESTS_P90
    )


def _per_batch_words(places: Sequence[Place]) -> Finding:
    ids = ids_of(places)
    requests, records = mean(place.requests for place in places), mean(place.records for place in places)
    sent = f"{requests:.1f} requests and {records:,.1f} records per id{_on_connections(places)}"
    text = sentence(Pattern.PRODUCER_PER_BATCH, {**clients(places), "new_ids": f"{ids:,}", "sent": sent})
    evidence = {"requests_per_id": round(requests, 3), "records_per_id": round(records, 3)}
    return Finding(Pattern.PRODUCER_PER_BATCH, text, ids, addresses(places), evidence)


def _on_connections(places: Sequence[Place]) -> str:
    per_connection = [place.ids_per_connection for place in places if place.ids_per_connection is not None]
    if not per_connection:
        return ""
    median = max(one.median for one in per_connection)
    if median <= 1:
        return ", a connection for each"
    return f", {counted(median, 'id')} per connection: one pool of connections"


# A producer per task or thread.


def _is_per_task(place: Place) -> bool:
    return (
        place.new_ids >= FEWEST_IDS
        and place.requests is not None
        and place.requests.count >= FEWEST_OVER
        and place.life_ms is not None
        and place.life_ms.median < SHORT_LIFE_MS
    )


def _per_task_words(places: Sequence[Place]) -> Finding:
    top, peak = places[0], max(place.peak_alive for place in places)
    assert top.life_ms is not None
    assert top.requests is not None
    return task_finding(
        clients(places), ids_of(places), top.life_ms.median, top.requests.median, peak, addresses(places)
    )


def task_finding(
    who: dict[str, str], ids: int, life_ms: int, requests: int, peak: int = 0, where: tuple[str, ...] = ()
) -> Finding:
    """Return the finding of a producer per task. `life_ms`, `requests`: medians; `peak`: ids at once, 0: not known."""
    words = {
        "new_ids": f"{ids:,}",
        "lived": in_use_for(life_ms),
        "requests": counted(requests, "request"),
        "at_once": f", up to {peak:,} at once" if peak else "",
    }
    text = sentence(Pattern.PRODUCER_PER_TASK, {**who, **words})
    evidence = {"life_ms_median": life_ms, "requests_median": requests}
    return Finding(
        Pattern.PRODUCER_PER_TASK, text, ids, where, evidence | ({"peak_alive": peak} if peak else {})
    )


def _is_per_thread(place: Place) -> bool:
    return (
        place.peak_alive >= THREADS
        and place.peak_alive >= THREADS_SHARE * place.new_ids
        and place.life_ms is not None
        and place.life_ms.median >= SHORT_LIFE_MS
    )


def _per_thread_words(places: Sequence[Place]) -> Finding:
    peak = sum(place.peak_alive for place in places)
    text = sentence(Pattern.PRODUCER_PER_THREAD, {**clients(places), "alive": counted(peak, "id")})
    ids = max(peak, ids_of(places))
    return Finding(Pattern.PRODUCER_PER_THREAD, text, ids, addresses(places), {"peak_alive": peak})


_RULES: Final[tuple[tuple[Pattern, Callable[[Place], bool], Callable[[Sequence[Place]], Finding]], ...]] = (
    (Pattern.RESTART_LOOP, _is_loop, _loop_words),
    (Pattern.PRODUCER_PER_BATCH, _is_per_batch, _per_batch_words),
    (Pattern.PRODUCER_PER_TASK, _is_per_task, _per_task_words),
    (Pattern.PRODUCER_PER_THREAD, _is_per_thread, _per_thread_words),
)
"""In this order: a restart loop that sends one batch each time is a restart loop."""


def of_places(places: Iterable[Place]) -> list[Finding]:
    """Return at most one finding for each place; the same pattern at several places is one finding."""
    by_kind: dict[Pattern, list[Place]] = {}
    for place in places:
        kind = next((kind for kind, rule, _ in _RULES if rule(place)), None)
        if kind is not None:
            by_kind.setdefault(kind, []).append(place)
    return [words(by_kind[kind]) for kind, _, words in _RULES if kind in by_kind]
