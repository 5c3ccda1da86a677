"""Section on the other brokers when one dies: KIP-936's own example, and real Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pidgate.pipeline.report import charts
from pidgate.pipeline.report.markup import Html, tag
from pidgate.pipeline.report.parts import Charts, Column, badge, not_run, section, table
from pidgate.pipeline.report.rows import Found, Heaps, KipStep, Study
from pidgate.pipeline.report.words import count, listed, moment, size


def failover_section(found: Found, drawn: Charts) -> Html:
    title = "When a broker dies"
    kip, kafka = found.kip, found.kafka
    if kip is None and kafka is None:
        return section("failover", title, not_run("failover"))
    return section(
        "failover",
        title,
        tag("h3", "The example of KIP-936"),
        tag(
            "p",
            "Six brokers that each die when they hold more than 200 ids; broker 1 dies, and its ids move. The text "
            "leaves open how they spread, so each rule has a table: one line for each step, ids on each broker, "
            "dead ones struck out.",
        ),
        [
            _rule(rule, [one for one in kip if one.rule == rule])
            for rule in dict.fromkeys(one.rule for one in kip)
        ]
        if kip
        else not_run("failover"),
        tag("h3", "Real Kafka"),
        tag(
            "p",
            "Every replica keeps the state of every producer, not only the leader, so a leader that moves adds "
            "nothing. What fills a heap is ids times partitions, over the time they are held. Here: this history's "
            "ids, with and without the quotas.",
        ),
        list(_kafka(kafka, drawn)) if kafka else not_run("failover"),
    )


def _rule(rule: str, rows: Sequence[KipStep]) -> Html:
    brokers = sorted({one.broker for one in rows})
    steps = sorted({one.step for one in rows})
    found = {(one.step, one.broker): one for one in rows}
    head = tag(
        "tr",
        tag("th", "Step", scope="col"),
        *(tag("th", f"Broker {one}", scope="col", class_="number") for one in brokers),
    )
    body = [
        tag(
            "tr", tag("th", str(step), scope="row"), *(_load(found.get((step, broker))) for broker in brokers)
        )
        for step in steps
    ]
    dead = {one.broker for one in rows if one.dead}
    end = f"{len(dead)} of {len(brokers)} dead" if len(dead) < len(brokers) else "all dead"
    made = tag("table", tag("thead", head), tag("tbody", *body), class_="loads")
    return tag(
        "div",
        tag("h4", f"{rule.replace('_', ' ').capitalize()}: {end}"),
        tag("div", made, class_="table", role="region", aria_label=f"Rule {rule}", tabindex=0),
    )


def _load(found: KipStep | None) -> Html:
    if found is None:
        return tag("td", "", class_="number")
    text = tag("s", count(found.load)) if found.dead else count(found.load)
    return tag("td", text, class_="number dead" if found.dead else "number")


def _kafka(found: Sequence[Heaps], drawn: Charts) -> Iterator[Html]:
    yield table(_COLUMNS, [one.study for one in found], "Brokers' heaps with and without quotas")
    for one in found:
        # A minute's history is one hour: the table says it all.
        if one.span.steps > 2:
            yield drawn.figure(
                charts.heaps(one), f"{_quotas(one.study)}; {one.study.scenario}", _end(one.study)
            )


def _quotas(study: Study) -> str:
    return "Without quotas" if study.quota == "none" else f"Quotas: {study.quota}"


def _dead(study: Study) -> Html:
    dead = study.brokers_dead
    if not dead:
        return badge("none", "good")
    return badge(f"{listed([str(one) for one in dead])} die{'s' if len(dead) == 1 else ''}", "bad")


_COLUMNS: Sequence[Column[Study]] = (
    Column("Quotas", _quotas),
    Column("Scenario", lambda study: study.scenario),
    Column("Fullest heap", lambda study: size(study.peak_heap_bytes), True),
    Column("May be used", lambda study: size(study.heap_limit_bytes), True),
    Column("Brokers dead of it", _dead),
    Column("First death", lambda study: moment(study.first_death_ms)),
)


def _end(study: Study) -> str:
    most = f"At most {size(study.peak_heap_bytes)} of {size(study.heap_limit_bytes)}, on broker {study.peak_broker}."
    if not study.brokers_dead:
        return f"{most} No broker dies of its heap."
    return f"{most} The first dies in the hour from {moment(study.first_death_ms)}."
