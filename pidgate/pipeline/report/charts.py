"""Charts as plotly dictionaries.

Colours are names (`--series-1`) defined by the page's light and dark styles.

Knows rows, but no HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from pidgate.findings.patterns import pattern_words
from pidgate.pipeline.report.rows import Candidate, Heaps, PatternAccuracy, Series, Times, UserRow
from pidgate.pipeline.report.series import HOUR_MS, Span
from pidgate.pipeline.report.words import count, duration, size

Chart = dict[str, Any]
Intervals = Sequence[tuple[float | None, float | None, float | None]]
"""A value, its lower and its upper bound."""
_COLOURS = 6
_LONG_NAME = 28
_FEW_STEPS = 12
_FEW = 8


def stacked(span: Span, lines: Sequence[Series], unit: str) -> Chart:
    """Draw stacked bars per step, for the sum and each part."""
    bars = [
        {
            "type": "bar",
            "name": _name(line.name),
            **_over(span, line.values),
            "marker": {"color": _colour(n, line.name), "line": {"width": 0}},
            "hovertemplate": "%{y:,} " + unit + "<extra>%{fullData.name}</extra>",
        }
        for n, line in enumerate(lines)
    ]
    layout = {**_time_layout(unit), "barmode": "stack", "bargap": 0.05}
    highest = max((sum(values) for values in zip(*(line.values for line in lines), strict=True)), default=0)
    if highest <= _FEW:
        layout["yaxis"]["dtick"] = 1
    return {"data": bars, "layout": layout}


def within_window(times: Times, user: UserRow, window_ms: int) -> tuple[Chart, str, str]:
    """Draw a user's new ids as the quota counts them, if the steps allow it; with title and caption."""
    span, line, advice = times.span, times.within_window[user.user], user.recommendation
    is_busiest_hour = not times.is_running and span.step_ms > HOUR_MS
    unit, caption = f"new ids per {span.unit}", f"One value for each {span.step_words}, UTC."
    if times.is_running and window_ms != span.step_ms:
        unit = f"new ids within {duration(window_ms)}"
        caption = f"At each {span.step_words}: all of the {duration(window_ms)} before."
    elif is_busiest_hour:
        unit, caption = "new ids in an hour", f"The busiest hour of each {span.step_words}, UTC."
    compares = times.is_running or (window_ms == HOUR_MS and is_busiest_hour)
    limit = advice.recommended_rate if advice and compares else None
    if limit is not None:
        caption += (
            " The dashed line is the recommended rate; a quiet user may bring a burst of one more "
            "window's ids."
        )
    return line_with_limit(span, line, unit, limit), unit.capitalize(), caption


def line_with_limit(span: Span, line: Series, unit: str, limit: float | None) -> Chart:
    """Draw one user's counts and the recommended rate as a horizontal line."""
    layout = _time_layout(unit)
    if limit is not None:
        _draw_limit(layout, limit, f"recommended: {count(limit)}")
        layout["yaxis"]["range"] = [0, 1.15 * max(limit, *line.values, 1)]
    drawn = _scatter(
        unit,
        _mode(span),
        "%{y:,} " + unit + "<extra></extra>",
        **_over(span, line.values),
        fill="tozeroy",
        fillcolor="--fill",
        line={"color": "--series-1", "width": 1.5, "shape": "hvh"},
    )
    return {"data": [drawn], "layout": layout}


def _line_at(axis: str, at: float, dash: str = "dash", width: int = 2) -> list[Chart]:
    """Return a line across the plot at one value of an axis."""
    other = "x" if axis == "y" else "y"
    place = {f"{axis}0": at, f"{axis}1": at, f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
    return [{"type": "line", **place, "line": {"color": "--limit", "width": width, "dash": dash}}]


def _draw_limit(layout: Chart, at: float, text: str) -> None:
    layout["shapes"] = _line_at("y", at)
    place = {"xref": "paper", "x": 1, "y": at, "xanchor": "right", "yanchor": "bottom", "showarrow": False}
    layout["annotations"] = [{**place, "text": text, "font": {"color": "--limit"}}]


def _mode(span: Span) -> str:
    """Return markers for a single point, which a line would not show."""
    return "lines+markers" if span.steps <= _FEW_STEPS else "lines"


def heaps(found: Heaps) -> Chart:
    """Draw a line per broker, with a cross at its death."""
    lines = [
        _scatter(
            f"broker {line.name}",
            _mode(found.span),
            "%{y:,.1f} MB<extra>%{fullData.name}</extra>",
            **_over(found.span, [round(value / (1 << 20), 2) for value in line.values]),
            line={"color": _colour(n, ""), "width": 2},
        )
        for n, line in enumerate(found.by_broker)
    ]
    if found.died:
        lines.append(_deaths(found))
    layout = _time_layout("MB of heap")
    limit = found.study.heap_limit_bytes
    # A distant limit would flatten the lines; the caption mentions it.
    if found.study.peak_heap_bytes * 3 > limit:
        _draw_limit(layout, limit / (1 << 20), f"limit: {size(limit)}")
    return {"data": lines, "layout": layout}


def _deaths(found: Heaps) -> Chart:
    by_name = {line.name: line.values for line in found.by_broker}
    span, brokers = found.span, sorted(found.died)
    steps = [min(span.steps - 1, (found.died[one] - span.start_ms) // span.step_ms) for one in brokers]
    heaps = [by_name[str(broker)][step] for broker, step in zip(brokers, steps, strict=True)]
    return _scatter(
        "dies",
        "markers",
        "%{text}<extra></extra>",
        x=[found.died[broker] for broker in brokers],
        y=[round(heap / (1 << 20), 2) for heap in heaps],
        text=[f"broker {broker} dies at {size(heap)}" for broker, heap in zip(brokers, heaps, strict=True)],
        marker={"symbol": "x", "size": 11, "color": "--limit"},
    )


def candidates(tried: Sequence[Candidate], recommended: float | None) -> tuple[Chart, str, str]:
    """Draw the outcome of each rate over all days, with title and caption.

    With a rogue, a point per rate: harmful ids held over healthy ids that wait.
    """
    by_rate: dict[float, list[Candidate]] = {}
    for one in tried:
        by_rate.setdefault(one.candidate_rate, []).append(one)
    rates = sorted(by_rate)
    waited = [sum(one.healthy_refused for one in by_rate[rate]) for rate in rates]
    held = [sum(one.rogue_refused for one in by_rate[rate]) for rate in rates]
    came = max(
        (sum(one.rogue_admitted + one.rogue_refused for one in of) for of in by_rate.values()), default=0
    )
    if not came:
        return _over_rates(rates, waited, recommended), "Outcomes of other rates", _REPLAYED
    longest_ms = [max(one.longest_wait_ms for one in by_rate[rate]) for rate in rates]
    line = _scatter(
        "rates tried",
        "lines+markers+text",
        "%{text} per window: %{y:,} harmful ids held, %{x:,} healthy ids wait, %{customdata} at most<extra></extra>",
        x=waited,
        y=held,
        text=[count(rate) for rate in rates],
        customdata=[duration(longest) for longest in longest_ms],
        textposition="top center",
        line={"color": "--series-1", "width": 1},
        marker={"color": ["--limit" if rate == recommended else "--series-1" for rate in rates], "size": 8},
    )
    layout = _layout("harmful ids held")
    layout["yaxis"]["range"] = [-0.05 * came, 1.15 * came]
    layout["xaxis"] = {"title": {"text": "healthy ids that have to wait"}, "tickformat": ",", **_AXIS}
    caption = (
        f"{_REPLAYED} A point per rate: how many of {count(came)} harmful ids it holds, and how many healthy ids "
        "have to wait. A rate that separates them lies at the top left."
    )
    return {"data": [line], "layout": layout}, "Cost of holding it", caption


_REPLAYED = "Replayed through the gateway's own quota code, over all days."


def _over_rates(rates: Sequence[float], waited: Sequence[int], recommended: float | None) -> Chart:
    line = _scatter(
        "healthy ids that wait",
        "lines+markers",
        "%{y:,} at a rate of %{x:,}<extra></extra>",
        x=list(rates),
        y=list(waited),
        line={"color": "--series-1", "width": 2},
        marker={"color": "--series-1", "size": 6},
    )
    layout = _layout("healthy ids that have to wait")
    layout["xaxis"] = {"title": {"text": "rate tried, new ids per window"}, "tickformat": ",", **_AXIS}
    # Rates from below 1 to thousands get a log axis, unless one is 0.
    if min(rates, default=0) > 0 and max(rates) > 20 * min(rates):
        layout["xaxis"] |= {"type": "log", "dtick": 1}
    if recommended:
        layout["shapes"] = _line_at("x", recommended)
    return {"data": [line], "layout": layout}


def accuracy(found: Sequence[PatternAccuracy]) -> Chart:
    """Draw precision and recall of each pattern with their 95 % intervals."""
    precision = [(one.precision, one.precision_low, one.precision_high) for one in found]
    recall = [(one.recall, one.recall_low, one.recall_high) for one in found]
    layout = _layout("")
    layout["xaxis"] = {"tickformat": ".0%", "range": [_least(precision, recall), 1.01], **_AXIS}
    layout["yaxis"] = {
        "autorange": "reversed",
        "tickvals": list(range(len(found))),
        "ticktext": [_text(pattern_words(one.pattern).name) for one in found],
        **_AXIS,
        "zeroline": False,
    }
    layout["height"] = 90 + 38 * len(found)
    layout["shapes"] = _line_at("x", 0.95, "dot", 1)
    dots = [
        _dots("precision", precision, -0.14, "--series-1", "circle"),
        _dots("recall", recall, 0.14, "--series-2", "diamond"),
    ]
    return {"data": dots, "layout": layout}


def _least(*values: Intervals) -> float:
    """Return the start of the axis, a little below the lowest interval and the target."""
    lowest = min((low for interval in values for _, low, _ in interval if low is not None), default=0.0)
    return max(0.0, lowest - 0.05) if lowest < 0.9 else 0.85


def _dots(name: str, values: Intervals, beside: float, colour: str, symbol: str) -> Chart:
    above = [_distance(value, high) for value, _, high in values]
    below = [_distance(low, value) for value, low, _ in values]
    look = {"color": colour, "thickness": 1.5, "width": 4}
    return _scatter(
        name,
        "markers",
        "%{x:.1%}<extra>" + name + "</extra>",
        x=[value for value, _, _ in values],
        y=[n + beside for n in range(len(values))],
        marker={"color": colour, "size": 9, "symbol": symbol},
        error_x={"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look},
    )


def _distance(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else max(0.0, high - low)


def _scatter(name: str, mode: str, hover: str, **more: Any) -> Chart:
    return {"type": "scatter", "name": name, "mode": mode, "hovertemplate": hover, **more}


_AXIS: Chart = {"gridcolor": "--grid", "zerolinecolor": "--grid", "fixedrange": True, "automargin": True}


def _layout(unit: str) -> Chart:
    return {"yaxis": {"title": {"text": unit}, "rangemode": "tozero", "tickformat": ",", **_AXIS}}


def _time_layout(unit: str) -> Chart:
    return {**_layout(unit), "xaxis": {"type": "date", **_AXIS}}


def _over(span: Span, values: Sequence[float]) -> Chart:
    return {"x0": span.start_ms, "dx": span.step_ms, "y": [_short(value) for value in values]}


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 3)


def _name(name: str | None) -> str:
    if name is None:
        return "all others"
    return _text((name if len(name) <= _LONG_NAME else name[: _LONG_NAME - 1] + "…") or "(no user name)")


def _text(text: str) -> str:
    """Escape a name: plotly parses labels as a subset of HTML, with links."""
    return escape(text, quote=False)


def _colour(n: int, name: str | None) -> str:
    return "--others" if name is None else f"--series-{n % _COLOURS + 1}"
