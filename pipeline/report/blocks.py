"""Blocks of producer ids (KIP-730) and epochs (KIP-360): how much of what brokers hand out passes the gateway."""

from __future__ import annotations

from collections.abc import Sequence

from pidgate.pipeline.report import charts
from pidgate.pipeline.report.findings import name_of
from pidgate.pipeline.report.markup import Content, Html, tag
from pidgate.pipeline.report.parts import Charts, Column, not_run, section, table, tiles
from pidgate.pipeline.report.rows import Blocks, Epochs, Found, Series
from pidgate.pipeline.report.words import count, moment, share

_COLUMNS: Sequence[Column[Epochs]] = (
    Column("Producer id", lambda one: str(one.producer_id)),
    Column("User", lambda one: name_of(one.user)),
    Column("Bumps", lambda one: count(one.bumps), True),
    Column("Epochs", lambda one: f"{count(one.first_epoch)} to {count(one.last_epoch)}", True),
    Column("Exhausted", lambda one: "yes" if one.exhausted else "no"),
)


def blocks_section(found: Found, drawn: Charts) -> Html:
    title = "Blocks of producer ids"
    if found.blocks is None:
        text = tag("p", "No id was handed out through a gateway in this history.", class_="empty")
        return section("ids", title, text if "ids_blocks" in found.has else not_run("ids"))
    return section("ids", title, *_content(found.blocks, drawn))


def _content(blocks: Blocks, drawn: Charts) -> Sequence[Content]:
    coverage = blocks.ids_seen / blocks.in_blocks if blocks.in_blocks else None
    lines = [
        Series(f"broker {line.name}" if line.name else "unknown", line.values) for line in blocks.by_broker
    ]
    return [
        tag(
            "p",
            "The controller gives ids to brokers in blocks of 1,000 (KIP-730), and brokers hand them out in order. So "
            "an id below one that was seen was handed out, too; if it was not seen here, its producer went past the "
            "gateway.",
        ),
        tiles(
            ("Blocks", count(blocks.blocks), "of 1,000 ids"),
            ("Ids seen", count(blocks.ids_seen), "in them"),
            ("Coverage", share(coverage), f"of {count(blocks.in_blocks)} handed out at least"),
            ("Busiest", count(blocks.busiest_blocks), f"blocks from {moment(blocks.busiest_ms)}"),
            ("Ids with a bumped epoch", count(blocks.bumped), "after an error (KIP-360)"),
            ("Epochs used up", count(blocks.exhausted), "ids; the producer then takes a new one"),
        ),
        drawn.figure(
            charts.stacked(blocks.span, lines, "blocks"),
            f"New blocks per {blocks.span.step_words}, by broker",
            "Bursts are rogue producers, or brokers that restart: each takes a new block then.",
        ),
        [tag("h3", "Most bumped ids"), table(_COLUMNS, blocks.most_bumps, "Ids with most epoch bumps")]
        if blocks.most_bumps
        else None,
    ]
