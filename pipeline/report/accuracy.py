"""Accuracy: the detector against users whose patterns are known, and the filters."""

from __future__ import annotations

from collections.abc import Sequence

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report import charts
from pidgate.pipeline.report.findings import name_of
from pidgate.pipeline.report.markup import Content, Html, tag
from pidgate.pipeline.report.parts import Charts, Column, not_run, section, table
from pidgate.pipeline.report.rows import Confused, FilterAccuracy, Filters, Found, PatternAccuracy
from pidgate.pipeline.report.words import count, share
from pidgate.units import counted


def accuracy_section(found: Found, drawn: Charts) -> Html:
    return section(
        "accuracy",
        "How far to trust this",
        tag("h3", "The detector"),
        _detector(found, drawn) if found.accuracy is not None else _no_labels(found),
        tag("h3", "The gateway's filters"),
        _filters(found.filters) if found.filters else not_run("recommend"),
    )


def _no_labels(found: Found) -> Html:
    if "offenders" not in found.has:
        return not_run("offenders")
    return tag(
        "p",
        "These users have no labels, so the detector cannot be checked against them. ",
        tag("code", "pidgate pipeline history"),
        " makes up users with labels, on which it can.",
        class_="empty",
    )


def _detector(found: Found, drawn: Charts) -> Sequence[Content]:
    judged = [one for one in found.accuracy or () if one.users or one.found]
    return [
        tag(
            "p",
            "Checked on users whose patterns are known. Precision: of those accused, how many show the pattern. "
            "Recall: of those that show it, how many were found. The lines are 95 % intervals (Wilson); the dotted "
            "line is the aim of 95 %.",
        ),
        drawn.figure(charts.accuracy(judged), "Precision and recall by pattern") if judged else None,
        table(_ACCURACY_COLUMNS, judged, "Precision and recall of the detector"),
        tag("h4", "Which pattern is taken for which"),
        _confusion(found.confusion) if found.confusion else tag("p", "Not counted.", class_="empty"),
    ]


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return share(None)
    return share(value) if low is None or high is None else f"{share(value)} ({share(low)} to {share(high)})"


def _precision(one: PatternAccuracy) -> str:
    return _interval(one.precision, one.precision_low, one.precision_high)


def _recall(one: PatternAccuracy) -> str:
    return _interval(one.recall, one.recall_low, one.recall_high)


_ACCURACY_COLUMNS: Sequence[Column[PatternAccuracy]] = (
    Column("Pattern", lambda one: pattern_words(one.pattern).name),
    Column("Users", lambda one: count(one.users), True, "that have it, by their labels"),
    Column("Found", lambda one: count(one.found), True, "users of whom the detector says so"),
    Column("Both", lambda one: count(one.true_positives), True),
    Column("Precision", _precision, True, "of those found, how many have it"),
    Column("Recall", _recall, True, "of those that have it, how many were found"),
)


def _confusion(rows: Sequence[Confused]) -> Html:
    """Rows: what is. Columns: what the detector says. Darker is more, relative to the row."""
    counts = {(one.actual, one.predicted): one.users for one in rows}
    actual = sorted({one.actual for one in rows})
    predicted = sorted({one.predicted for one in rows}, key=lambda name: (name not in actual, name))
    head = tag(
        "tr",
        tag("th", "is ↓  taken for →", scope="col"),
        *(
            tag("th", tag("span", pattern_words(name).name), scope="col", class_="turned")
            for name in predicted
        ),
    )
    body = [_confusion_row(name, predicted, counts) for name in actual]
    made = tag("table", tag("thead", head), tag("tbody", *body), class_="confusion")
    return tag("div", made, class_="table", role="region", aria_label="Confusion matrix", tabindex=0)


def _confusion_row(actual: str, predicted: Sequence[str], counts: dict[tuple[str, str], int]) -> Html:
    total = sum(counts.get((actual, name), 0) for name in predicted) or 1
    cells = []
    for name in predicted:
        users = counts.get((actual, name), 0)
        look = "right" if name == actual else "wrong"
        weight = round(100 * users / total)
        cells.append(
            tag("td", count(users) if users else "·", class_=f"{look} number", style=f"--weight:{weight}%")
        )
    return tag("tr", tag("th", pattern_words(actual).name, scope="row"), *cells)


_FILTER_COLUMNS: Sequence[Column[FilterAccuracy]] = (
    Column("User", lambda one: name_of(one.user)),
    Column("Ids", lambda one: count(one.ids), True),
    Column("Passed unpaid", lambda one: count(one.false_positives), True, "false positives of the filters"),
    Column("Rate", lambda one: share(one.false_positive_rate), True),
    Column("Expected", lambda one: share(one.expected_rate), True),
)


def _filters(filters: Filters) -> Sequence[Content]:
    rate = filters.false_positives / filters.ids if filters.ids else None
    expected = filters.expected / filters.ids if filters.ids else None
    return [
        tag(
            "p",
            "The gateway remembers ids in Bloom filters: now and then a new id looks known and passes unpaid. "
            f"Of {counted(filters.ids, 'id')} of {counted(filters.users, 'user')}, {count(filters.false_positives)} "
            f"did ({share(rate)}); the filters are built for at most {share(expected)}.",
        ),
        table(_FILTER_COLUMNS, filters.worst, "Accuracy of the filters by user"),
    ]
