"""The beat of a source's starts: equal or growing intervals, or fixed clock times. Pure.

`cadence` is the definition, for the lives kept by the console. pipeline/offenders/sources.sql computes the same
sums over tables, and `beat` makes features of both; tests/pipeline/test_offenders_cadence.py compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

MILLION: Final = 1_000_000
FEWEST_BURSTS: Final = 6
"""Starts needed for a beat: five intervals."""
CLOCK: Final = 0.8
"""Concentration of starts on the clock. Equal times give 1, times within half of the period 0.64, any times 0."""
EXECUTORS_GAP_MS: Final = 120_000
BURST_GAPS_MS: Final = (1_000, 10_000, EXECUTORS_GAP_MS)
"""Starts closer together than this count as one start of several producers. Of the gaps, the one that shows
more of a beat counts. The last gap, for the executors of a cluster, counts by the clock only: it would hide
the first steps of a back-off."""
EVEN: Final = (0.8, 1.25)
"""An interval equals the one before if it is within these multiples of it. One in nine random intervals is."""
GROWN: Final = (1.5, 3.0)
"""An interval has grown like a back-off (10, 20, 40 s) within these multiples. One in seven random intervals
has."""
OVERLAP_MS: Final = 1_000
"""A start overlaps with the one before if that was in use for at least this long after it."""
KNOWN_PAUSES: Final = 0.8
"""Share of the intervals with known pauses needed for a beat of pauses."""
FEWEST_PERIODS: Final = 5
PERIODS_MS: Final = tuple(
    minutes * 60_000 for minutes in (1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)
)
"""Periods whose multiples are usual in crontabs."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a producer, and its last use. None: unknown."""

    at_ms: int
    end_ms: int | None


@dataclass(slots=True)
class _Burst:
    at_ms: int
    end_ms: int | None
    ids: int


def cadence(starts: Iterable[Start]) -> dict[str, float]:
    """Return the cadence features of SourceFeatures; unknown ones are left out.

    - bursts: starts of one or several producers.
    - interval_ms, pause_ms: between their beginnings, and from the end that a start follows (geometric means).
      A start follows the earliest end that no other start has followed, so several processes are told apart.
    - beat_share: of the intervals, or else of the pauses of each process, those that equal the one before or have
      grown as a back-off does.
    - grown: how many of them grew.
    - run_ms: from a start to its end (geometric mean).
    - processes: runs and pauses between two starts: so many take turns.
    - overlap_share: bursts that began while the one before was in use.
    - clock: from 0 (any time) to 1 (always the same second, minute, ... of the period clock_ms).
    - clock_periods: periods with a start in them.
    """
    ticks = _ticks(starts)
    if not ticks:
        return {}
    return best_beat((gap_ms, _measured(_bursts(ticks, gap_ms))) for gap_ms in BURST_GAPS_MS)


def best_beat(by_gap: Iterable[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Return the features of the gap that shows more of a sure beat than the others, or else of the least."""
    return max(by_gap, key=lambda one: (_sure_beat(one[1], one[0]), -one[0]))[1]


def _ticks(starts: Iterable[Start]) -> list[_Burst]:
    """Join the starts of each second."""
    ticks: dict[int, _Burst] = {}
    for start in starts:
        tick = ticks.get(start.at_ms // 1_000)
        if tick is None:
            ticks[start.at_ms // 1_000] = _Burst(start.at_ms, start.end_ms, 1)
        else:
            tick.at_ms = min(tick.at_ms, start.at_ms)
            _join(tick, start.end_ms, 1)
    return [ticks[second] for second in sorted(ticks)]


def _bursts(ticks: Sequence[_Burst], gap_ms: int) -> list[_Burst]:
    bursts: list[_Burst] = []
    before_ms = 0
    for tick in ticks:
        if bursts and tick.at_ms - before_ms <= gap_ms:
            _join(bursts[-1], tick.end_ms, tick.ids)
        else:
            bursts.append(_Burst(tick.at_ms, tick.end_ms, tick.ids))
        before_ms = tick.at_ms
    return bursts


def _join(burst: _Burst, end_ms: int | None, ids: int) -> None:
    if end_ms is not None:
        burst.end_ms = end_ms if burst.end_ms is None else max(burst.end_ms, end_ms)
    burst.ids += ids


def _measured(bursts: Sequence[_Burst]) -> dict[str, float]:
    intervals = [after.at_ms - before.at_ms for before, after in pairwise(bursts)]
    known, pause_steps = _pauses(bursts)
    steps = [after / before for before, after in pairwise(intervals)]
    sums = {
        "bursts": len(bursts),
        "burst_ids": sum(burst.ids for burst in bursts),
        "intervals": len(intervals),
        "log_interval": sum(map(millionths, map(math.log, intervals))),
        "pauses": len(known),
        "log_pause": sum(millionths(math.log(pause)) for pause in known),
        "log_run": sum(millionths(math.log(max(_end_ms(burst) - burst.at_ms, 1))) for burst in bursts),
        "overlaps": sum(_end_ms(before) - after.at_ms > OVERLAP_MS for before, after in pairwise(bursts)),
        "steps": len(steps),
        "even": _within(steps, EVEN),
        "grown": _within(steps, GROWN),
        "pause_steps": len(pause_steps),
        "pause_even": _within(pause_steps, EVEN),
        "pause_grown": _within(pause_steps, GROWN),
    }
    return beat(sums, _clocks([burst.at_ms for burst in bursts]))


def _pauses(bursts: Sequence[_Burst]) -> tuple[list[int], list[float]]:
    """Return the pauses before starts that follow an end, and the ratio of each to the one before of its process."""
    ends = sorted((_end_ms(burst), number) for number, burst in enumerate(bursts))
    pauses: dict[int, int] = {}
    steps = []
    for number, burst in enumerate(bursts):
        end_ms, before = ends[len(pauses)]
        if end_ms < burst.at_ms:
            pauses[number] = burst.at_ms - end_ms
            if before in pauses:
                steps.append(pauses[number] / pauses[before])
    return list(pauses.values()), steps


def _end_ms(burst: _Burst) -> int:
    return burst.at_ms if burst.end_ms is None else burst.end_ms


def _within(values: Sequence[float], between: tuple[float, float]) -> int:
    return sum(between[0] <= value <= between[1] for value in values)


def _clocks(starts_ms: Sequence[int]) -> list[dict[str, int]]:
    clocks = []
    for period_ms in PERIODS_MS:
        turns = [at_ms % period_ms * (math.tau / period_ms) for at_ms in starts_ms]
        clocks.append({
            "period_ms": period_ms,
            "periods": len({at_ms // period_ms for at_ms in starts_ms}),
            "across": sum(millionths(math.cos(turn)) for turn in turns),
            "up": sum(millionths(math.sin(turn)) for turn in turns),
        })  # fmt: skip
    return clocks


def millionths(value: float) -> int:
    """Return a number in whole millionths: sums of these do not depend on their order."""
    return round(value * MILLION)


def geometric_mean(sum_of_logarithms: int, count: int) -> float:
    """Return the mean of `count` numbers from the sum of their logarithms in millionths."""
    return math.exp(sum_of_logarithms / MILLION / count)


def beat(sums: Mapping[str, int], clocks: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Return the features of cadence() for one gap, from whole sums over its bursts.

    `clocks`: for each period the periods with a start in them, and the sums of sine and cosine in millionths.
    """
    bursts, steps, pause_steps = sums["bursts"], sums["steps"], sums["pause_steps"]
    has_pauses = pause_steps and pause_steps >= KNOWN_PAUSES * steps
    # Intervals between the starts of several processes grow by chance.
    found: dict[str, float] = {"bursts": bursts, "grown": sums["pause_grown" if has_pauses else "grown"]}
    found["ids_per_burst"] = sums["burst_ids"] / bursts
    found["run_ms"] = geometric_mean(sums["log_run"], bursts)
    if sums["intervals"]:
        found["interval_ms"] = geometric_mean(sums["log_interval"], sums["intervals"])
        found["overlap_share"] = sums["overlaps"] / sums["intervals"]
    if known := sums["pauses"]:
        found["pause_ms"] = geometric_mean(sums["log_pause"], known)
        found["processes"] = max(1.0, (found["run_ms"] + found["pause_ms"]) / found["interval_ms"])
    beats = [(sums["even"] + sums["grown"]) / steps] if steps else []
    if has_pauses:
        beats.append((sums["pause_even"] + sums["pause_grown"]) / pause_steps)
    if beats:
        found["beat_share"] = max(beats)
    turns = [
        (math.hypot(one["across"], one["up"]) / MILLION / bursts, one["period_ms"], one["periods"])
        for one in clocks
        if one["periods"] >= FEWEST_PERIODS
    ]
    if turns:
        found["clock"], found["clock_ms"], found["clock_periods"] = max(turns)
    return found


def _sure_beat(found: Mapping[str, float], gap_ms: int) -> float:
    """Return the share of the intervals at a beat that is sure, which decides between the gaps."""
    by_clock = found.get("clock", 0.0) >= CLOCK
    is_sure = found["bursts"] >= FEWEST_BURSTS and (gap_ms < EXECUTORS_GAP_MS or by_clock)
    return found.get("beat_share", 0.0) if is_sure else 0.0
