"""The matrix as it came out of a run: collected cell by cell, written as JSON and Markdown, put into docs/clients.md.

`python -m tests.clients.report` takes clients-matrix.json, which the run wrote, and replaces the part of
docs/clients.md between the two markers. No cell is ever typed.
"""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from tests.clients.roster import CLIENTS, COLUMNS, KAFKAS, OTHERS, Client
from tests.support.clients import other_client

OK: Final = "ok"
NOT_OFFERED: Final = "n/a"
FAILED: Final = "**failed**"
HANGS: Final = "hangs"
"""The client's own fault, with what it was told being true."""

_ROOT: Final = Path(__file__).parents[2]
JSON_FILE: Final = _ROOT / "clients-matrix.json"
MARKDOWN_FILE: Final = _ROOT / "clients-matrix.md"
DOCUMENT: Final = _ROOT / "docs" / "clients.md"
BEGIN: Final = "<!-- generated from here by make clients -->\n"
END: Final = "<!-- to here -->\n"


@dataclass(frozen=True, slots=True)
class Cell:
    """One client, one feature, one Kafka: ok, n/a, hangs or failed, and a note."""

    state: str
    note: str = ""


@dataclass(slots=True)
class Matrix:
    """All cells of a run. A column without any cell was not run."""

    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    """(Kafka version, client, column) to the cell."""
    ran_on: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    versions: Mapping[str, str] = field(default_factory=lambda: _versions())

    def to_json(self) -> str:
        rows = [
            {"kafka": kafka, "client": client, "feature": column, **asdict(cell)}
            for (kafka, client, column), cell in self.cells.items()
        ]
        return json.dumps({"ran_on": self.ran_on, "versions": dict(self.versions), "cells": rows}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        read = json.loads(text)
        cells = {
            (row["kafka"], row["client"], row["feature"]): Cell(row["state"], row["note"])
            for row in read["cells"]
        }
        return cls(cells, read["ran_on"], read["versions"])

    def missing(self) -> list[str]:
        """Cells that a whole run would have."""
        return [
            f"{client} / {column} / Kafka {kafka}"
            for kafka in KAFKAS
            for client in CLIENTS
            for column in COLUMNS
            if (kafka, str(client), column) not in self.cells
        ]

    def to_markdown(self) -> str:
        """One table a Kafka version, the refusals in words, and why the n/a are n/a."""
        ran_with = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        parts = [f"Run on {self.ran_on} with {ran_with}.\n"]
        for kafka in KAFKAS:
            parts.append(f"\n### Kafka {kafka}, three brokers\n\n{self._table(kafka, CLIENTS, COLUMNS)}")
        others = {str(client) for client in OTHERS}
        columns = [
            column
            for column in COLUMNS
            if any(key[1:] == (name, column) for key in self.cells for name in others)
        ]
        if columns:
            versions = ", ".join(f"{client} {other_client.version(client.driver)}" for client in OTHERS)
            parts.append(f"\n### Clients in other languages\n\n{versions}.\n")
            parts += [f"\nKafka {kafka}:\n\n{self._table(kafka, OTHERS, columns)}" for kafka in KAFKAS]
        parts.append(f"\n### What each cell was\n\n{self._notes()}")
        return "".join(parts)

    def _table(self, kafka: str, clients: Sequence[Client], columns: Sequence[str]) -> str:
        lines = [_row(["", *columns]), _row(["---"] * (len(columns) + 1))]
        for client in clients:
            found = [self.cells.get((kafka, str(client), column)) for column in columns]
            lines.append(_row([str(client), *(cell.state if cell else "not run" for cell in found)]))
        return "".join(lines)

    def _notes(self) -> str:
        lines = [_row(["client", "feature", "Kafka", "cell", "what was done, or why not"]), _row(["---"] * 5)]
        for client in (*CLIENTS, *OTHERS):
            for column in COLUMNS:
                for kafka in KAFKAS:
                    cell = self.cells.get((kafka, str(client), column))
                    if cell is not None and cell.note:
                        lines.append(_row([str(client), column, kafka, cell.state, cell.note]))
        return "".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _versions() -> dict[str, str]:
    import confluent_kafka

    clients = {name: version(name) for name in ("aiokafka", "kafka-python", "confluent-kafka")}
    return {
        **clients,
        "librdkafka": confluent_kafka.libversion()[0],
        "Python": platform.python_version(),
    }


def with_matrix(document: str, matrix: Matrix) -> str:
    """The document with the generated part replaced. Raises ValueError when a marker is missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the markers are missing: {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{matrix.to_markdown()}\n{end}{after}"


def main() -> str | None:
    """None, or what is wrong."""
    if not JSON_FILE.exists():
        return f"no {JSON_FILE.name}: run `make clients` first"
    matrix = Matrix.from_json(JSON_FILE.read_text())
    if missing := matrix.missing():
        return (
            f"{len(missing)} cells were not run, {DOCUMENT.name} stays as it is: {', '.join(missing[:5])} ..."
        )
    DOCUMENT.write_text(with_matrix(DOCUMENT.read_text(), matrix))
    print(f"{len(matrix.cells)} cells written to {DOCUMENT}")
    return None


if __name__ == "__main__":
    sys.exit(main())
