"""Accuracy: the detector against users whose patterns are known, and the filters."""

from __future__ import annotations

from collections.abc import Sequence

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report import charts
from pidgate.pipeline.report.findings import name_of
from pidgate.pipeline.report.markup import Content, Html, tag
from pidgate.pipeline.report.parts import Charts, Column, not_run, section, table
from pidgate.pipeline.report.rows import Confused, Detector, Filters, Found, PatternAccuracy
from pidgate.pipeline.report.words import count, share
from pidgate.units import counted

_ACCURACY_COLUMNS = (
    Column("Pattern"),
    Column("Users", True, "that have it, by their labels"),
    Column("Found", True, "users of whom the detector says so"),
    Column("Both", True),
    Column("Precision", True, "of those found, how many have it"),
    Column("Recall", True, "of those that have it, how many were found"),
)
_FILTER_COLUMNS = (
    Column("User"),
    Column("Ids", True),
    Column("Passed unpaid", True, "false positives of the filters"),
    Column("Rate", True),
    Column("Expected", True),
)


def accuracy_section(found: Found, drawn: Charts) -> Html:
    return section(
        "accuracy",
        "How far to trust this",
        tag("h3", "The detector"),
        _detector(found.detector, drawn) if found.detector else _no_labels(found),
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


def _detector(detector: Detector, drawn: Charts) -> Sequence[Content]:
    judged = [one for one in detector.accuracy if one.users or one.found]
    rows = [_accuracy_row(one) for one in judged]
    return [
        tag(
            "p",
            "Checked on users whose patterns are known. Precision: of those accused, how many show the pattern. "
            "Recall: of those that show it, how many were found. The lines are 95 % intervals (Wilson); the dotted "
            "line is the aim of 95 %.",
        ),
        drawn.figure(charts.accuracy(judged), "Precision and recall by pattern") if judged else None,
        table(_ACCURACY_COLUMNS, rows, "Precision and recall of the detector"),
        tag("h4", "Which pattern is taken for which"),
        _confusion(detector.confusion) if detector.confusion else tag("p", "Not counted.", class_="empty"),
    ]


def _accuracy_row(one: PatternAccuracy) -> list[Content]:
    return [
        pattern_words(one.pattern).name,
        count(one.users),
        count(one.found),
        count(one.true_positives),
        _interval(one.precision, one.precision_low, one.precision_high),
        _interval(one.recall, one.recall_low, one.recall_high),
    ]


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return share(None)
    return share(value) if low is None or high is None else f"{share(value)} ({share(low)} to {share(high)})"


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


def _filters(filters: Filters) -> Sequence[Content]:
    rate = filters.false_positives / filters.ids if filters.ids else None
    expected = filters.expected / filters.ids if filters.ids else None
    rows: list[list[Content]] = [
        [
            name_of(one.user),
            count(one.ids),
            count(one.false_positives),
            share(one.false_positive_rate),
            share(one.expected_rate),
        ]
        for one in filters.worst
    ]
    return [
        tag(
            "p",
            "The gateway remembers ids in Bloom filters: now and then a new id looks known and passes unpaid. "
            f"Of {counted(filters.ids, 'id')} of {counted(filters.users, 'user')}, {count(filters.false_positives)} "
            f"did ({share(rate)}); the filters are built for at most {share(expected)}.",
        ),
        table(_FILTER_COLUMNS, rows, "Accuracy of the filters by user"),
    ]
