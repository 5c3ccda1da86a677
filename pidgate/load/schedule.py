"""The moments at which batches are due: fixed before anything is sent, whatever the answers do (open loop).

Latency counts from these times. A generator that waits for an answer before it thinks of the next request leaves out
just those requests that would have met a stall (coordinated omission). PURE.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping

from pidgate.load.plan import Kind

Due = tuple[float, Kind, int]
"""Seconds after the start, the kind, the batch's number within its kind."""


def schedule(rates_per_s: Mapping[Kind, float], duration_s: float, seed: int) -> Iterator[Due]:
    """Yield all that is due within `duration_s`, in order of time.

    Each kind has an even beat; the first one is a random part of an interval after the start, so that kinds with the
    same rate do not fall on the same moments.
    """
    dice = random.Random(seed)
    beats = [_beat(kind, rate, dice.random() / rate, duration_s) for kind, rate in rates_per_s.items()]
    return heapq.merge(*beats)


def _beat(kind: Kind, rate_per_s: float, first_s: float, duration_s: float) -> Iterator[Due]:
    for number in itertools.count():
        # Counted from the start: a sum of intervals would drift.
        due_s = first_s + number / rate_per_s
        if due_s >= duration_s:
            return
        yield due_s, kind, number
