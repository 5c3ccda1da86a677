"""Charts over time as SVG paths and labels in per cent, so that they print, and stretch with the page without a script.

Knows rows, but no HTML: `chart` in parts.html draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, log10
from typing import Final, NamedTuple

from pidgate.pipeline.report.rows import DAY_MS, HOUR_MS, MINUTE_MS, Heaps, Row, Series, Span, Times
from pidgate.pipeline.report.words import count, duration, size

HEIGHT: Final = 100.0
"""Units of a plot, from its foot to its head; a step is one unit wide."""
_COLOURS: Final = 6
_LONG_NAME: Final = 28
_MOST_TICKS: Final = 8
_TICKS_MS: Final = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 7, 14, 28, 91, 364)),
)


class Tick(NamedTuple):
    """A label at a place of an axis, in per cent from the left or the foot."""

    at: float
    text: str


class Line(NamedTuple):
    """What is drawn of one name: `look` is a class of the style sheet; `values` one number per step."""

    name: str
    look: str
    path: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `across` and `up` are its axes; `limit` a horizontal line with its label."""

    unit: str
    span: Span
    lines: Sequence[Line]
    up: Sequence[Tick]
    across: Sequence[Tick]
    limit: Tick | None = None
    marks: Sequence[tuple[float, float, str]] = field(default_factory=tuple)
    """Crosses: per cent from the left, per cent from the foot, and text."""


def stacked(span: Span, lines: Sequence[Series], unit: str) -> Chart:
    """Draw stacked bars per step, for the sum and each part."""
    tops = [0.0] * span.steps
    highest = max((sum(values) for values in zip(*(line.values for line in lines), strict=True)), default=0)
    top, up = _scale(highest)
    drawn = []
    for number, line in enumerate(lines):
        path = []
        for step, value in enumerate(line.values):
            if value:
                low, tops[step] = tops[step], tops[step] + value
                path.append(f"M{step} {_y(low, top)}h.9V{_y(tops[step], top)}h-.9z")
        drawn.append(Line(_name(line.name), _look(number, line.name), "".join(path), line.values))
    return Chart(unit, span, drawn, up, _across(span))


def within_window(times: Times, user: str, advice: Row | None, window_ms: int) -> tuple[Chart, str, str]:
    """Draw a user's new ids as the quota counts them, if the steps allow it; with title and caption."""
    span, line = times.span, times.within_window[user]
    is_busiest_hour = not times.is_running and span.step_ms > HOUR_MS
    unit, caption = f"new ids per {span.unit}", f"One value for each {span.step_words}, UTC."
    if times.is_running and window_ms != span.step_ms:
        unit = f"new ids within {duration(window_ms)}"
        caption = f"At each {span.step_words}: all of the {duration(window_ms)} before."
    elif is_busiest_hour:
        unit, caption = "new ids in an hour", f"The busiest hour of each {span.step_words}, UTC."
    compares = times.is_running or (window_ms == HOUR_MS and is_busiest_hour)
    limit = advice["recommended_rate"] if advice and compares else None
    if limit is not None:
        caption += " The dashed line is the recommended rate; a quiet user may bring a burst of one more window's ids."
    top, up = _scale(max(limit or 0, *line.values))
    steps = "".join(f"V{_y(value, top)}h1" for value in line.values)
    path = f"M0 {HEIGHT:g}{steps}V{HEIGHT:g}z"
    at = Tick(100 * limit / top, f"recommended: {count(limit)}") if limit is not None else None
    return (
        Chart(unit, span, [Line(unit, "series-1", path, line.values)], up, _across(span), at),
        unit.capitalize(),
        caption,
    )


def heaps(found: Heaps) -> Chart:
    """Draw a line per broker, with a cross at its death."""
    span, limit = found.span, found.study["heap_limit_bytes"]
    peak = max([found.study["peak_heap_bytes"], *(max(line.values) for line in found.by_broker)])
    # A distant limit would flatten the lines; the caption mentions it.
    shows_limit = peak * 3 > limit
    top, up = _scale(max(peak, limit if shows_limit else 0), size)
    lines = [
        Line(
            f"broker {line.name}",
            f"line series-{number % _COLOURS + 1}",
            f"M0 {_y(line.values[0], top)}" + "".join(f"V{_y(value, top)}h1" for value in line.values),
            line.values,
        )
        for number, line in enumerate(found.by_broker)
    ]
    by_name = {line.name: line.values for line in found.by_broker}
    marks = []
    for broker, died_ms in sorted(found.died.items()):
        step = min(span.steps - 1, (died_ms - span.start_ms) // span.step_ms)
        heap = by_name[str(broker)][step]
        marks.append(
            (100 * (step + 0.5) / span.steps, 100 * heap / top, f"broker {broker} dies at {size(heap)}")
        )
    at = Tick(100 * limit / top, f"limit: {size(limit)}") if shows_limit else None
    return Chart("heap", span, lines, up, _across(span), at, marks)


def _scale(highest: float, write: Callable[[float], str] = count) -> tuple[float, list[Tick]]:
    """Return the head of the axis, and round labels up to it."""
    if highest <= 0:
        return 1.0, [Tick(0, "0")]
    digit = 10.0 ** ceil(log10(highest) - 1)
    step = next(of * digit for of in (0.2, 0.5, 1, 2) if highest / (of * digit) <= 5)
    if write is count:
        step = max(1.0, ceil(step))
    steps = ceil(highest / step)
    return steps * step, [Tick(100 * number / steps, write(number * step)) for number in range(steps + 1)]


def _across(span: Span) -> list[Tick]:
    """Return few round times: the hour of a short history, the day of a long one."""
    long_ms = span.steps * span.step_ms
    pace_ms = next((pace for pace in _TICKS_MS if long_ms / pace <= _MOST_TICKS), _TICKS_MS[-1])
    return [Tick(100 * (at_ms - span.start_ms) / long_ms, text) for at_ms, text in _times(span, pace_ms)]


def _times(span: Span, pace_ms: int) -> Iterator[tuple[int, str]]:
    day = ""
    first_ms = -(-span.start_ms // pace_ms) * pace_ms
    for at_ms in range(first_ms, span.start_ms + span.steps * span.step_ms, pace_ms):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        before, day = day, f"{at.day} {at:%b}"
        if pace_ms >= DAY_MS:
            yield at_ms, day
        else:
            yield at_ms, f"{at:%H:%M}" if day == before else f"{at:%H:%M} {day}"


def _y(value: float, top: float) -> str:
    """Return the distance from the head of the plot, with as few digits as matter."""
    return f"{HEIGHT - HEIGHT * value / top:.1f}".removesuffix(".0")


def _name(name: str | None) -> str:
    if name is None:
        return "all others"
    return (name if len(name) <= _LONG_NAME else name[: _LONG_NAME - 1] + "…") or "(no user name)"


def _look(number: int, name: str | None) -> str:
    return "others" if name is None else f"series-{number % _COLOURS + 1}"
