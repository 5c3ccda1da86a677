"""Parts of sections: headings, tiles, tables, figures. One look for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pidgate.pipeline.report.charts import Chart
from pidgate.pipeline.report.markup import Content, Html, joined, tag

Row = TypeVar("Row")


@dataclass(slots=True)
class Charts:
    """All charts of the page; drawn when they come into sight."""

    drawn: list[Chart] = field(default_factory=list)

    def figure(self, chart: Chart, title: str, caption: Content = None) -> Html:
        """A chart under its title; the caption says in words what it shows."""
        number = len(self.drawn)
        self.drawn.append(chart)
        height = chart["layout"].get("height", 300)
        plot = tag(
            "div", class_="chart", role="img", aria_label=title, data_chart=number, style=f"height:{height}px"
        )
        words = tag("figcaption", tag("h3", title), tag("p", caption) if caption else None)
        return tag("figure", words, plot)


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table: its head, and what it shows of a row; numbers stand right."""

    title: str
    cell: Callable[[Row], Content]
    is_number: bool = False
    hint: str = ""


def section(name: str, title: str, *content: Content) -> Html:
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def not_run(*jobs: str) -> Html:
    """Return a note in place of a job's results."""
    commands = [tag("code", f"pidgate pipeline {job}") for job in jobs]
    return tag(
        "p",
        "Not run yet: ",
        *(joined(", " if n else "", one) for n, one in enumerate(commands)),
        class_="empty",
    )


def tiles(*pairs: tuple[str, str, str]) -> Html:
    """Key numbers: what, how much, and a word on it."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", what), tag("dd", tag("b", number), tag("small", note) if note else None))
            for what, number, note in pairs
        ),
        class_="tiles",
    )


def table(columns: Sequence[Column[Row]], rows: Iterable[Row], label: str, *, id_: str | None = None) -> Html:
    """Return a table that scrolls sideways where the page is narrow, also by keyboard."""
    head = tag(
        "tr",
        *(tag("th", one.title, scope="col", class_=_class(one), title=one.hint or None) for one in columns),
    )
    body = [tag("tr", *(tag("td", one.cell(row), class_=_class(one)) for one in columns)) for row in rows]
    made = tag("table", tag("thead", head), tag("tbody", *body), id=id_)
    return tag("div", made, class_="table", role="region", aria_label=label, tabindex=0)


def badge(text: str, look: str) -> Html:
    """`look`: bad, warn, good or plain. Never the only sign: the text says it, too."""
    return tag("span", text, class_=f"badge {look}")


def _class(column: Column[Any]) -> str | None:
    return "number" if column.is_number else None
