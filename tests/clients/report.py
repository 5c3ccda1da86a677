"""The matrix of a run: collected cell by cell, written as JSON and Markdown, put into docs/reference/clients.md.

`python -m tests.clients.report` takes clients-matrix.json, which the run wrote, and replaces the parts of
docs/reference/clients.md between markers: what clients do, and how they log in. A part of which a cell is missing
stays as it is. No cell is ever typed.
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

from tests.clients.roster import CLIENTS, COLUMNS, KAFKAS, LOGIN_CLIENTS, LOGINS, OTHERS, Client
from tests.support.clients import other_client

OK: Final = "ok"
NOT_OFFERED: Final = "n/a"
FAILED: Final = "**failed**"
HANGS: Final = "hangs"
"""The client's own fault, with what it was told being true."""

_ROOT: Final = Path(__file__).parents[2]
JSON_FILE: Final = _ROOT / "clients-matrix.json"
MARKDOWN_FILE: Final = _ROOT / "clients-matrix.md"
DOCUMENT: Final = _ROOT / "docs" / "reference" / "clients.md"
BEGIN: Final = "<!-- generated from here by make clients -->\n"
END: Final = "<!-- to here -->\n"
LOGINS_BEGIN: Final = "<!-- logins, generated from here by make clients -->\n"
LOGINS_END: Final = "<!-- logins, to here -->\n"


@dataclass(frozen=True, slots=True)
class Cell:
    """One client, one feature, one Kafka: ok, n/a, hangs or failed, and a note."""

    state: str
    note: str = ""

    @property
    def is_notable(self) -> bool:
        """Whether a reader of the page wants the note. The JSON file of a run has all of them."""
        if self.state == OK:
            return "raised" in self.note or "connections" in self.note
        return bool(self.note) and " has no " not in self.note


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

    def missing(self, clients: Sequence[Client] = CLIENTS, columns: Sequence[str] = COLUMNS) -> list[str]:
        """Cells that a whole run would have."""
        return [
            f"{client} / {column} / Kafka {kafka}"
            for kafka in KAFKAS
            for client in clients
            for column in columns
            if (kafka, str(client), column) not in self.cells
        ]

    def logins_to_markdown(self) -> str:
        """One table for the Kafka versions that agree, and what was seen."""
        parts = [f"Run on {self.ran_on}. The names of Java's clients give their versions.\n"]
        for kafkas, table in self._tables(LOGIN_CLIENTS, LOGINS):
            parts.append(f"\n### Logins to Kafka {kafkas}\n\n{table}")
        parts.append(f"\n### Notes on logins\n\n{self._notes(LOGIN_CLIENTS, LOGINS)}")
        return "".join(parts)

    def to_markdown(self) -> str:
        """One table for the Kafka versions that agree, and a note of each cell in which not everything went well."""
        ran_with = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        parts = [f"Run on {self.ran_on} with {ran_with}.\n"]
        for kafkas, table in self._tables(CLIENTS, COLUMNS):
            parts.append(f"\n### Kafka {kafkas}, three brokers\n\n{table}")
        others = {str(client) for client in OTHERS}
        columns = [
            column
            for column in COLUMNS
            if any(key[1:] == (name, column) for key in self.cells for name in others)
        ]
        if columns:
            versions = ", ".join(
                f"{client} {other_client.version(client.driver)}" for client in OTHERS if not client.release
            )
            parts.append(f"\n### Clients of two years ago, and in other languages\n\n{versions}.\n")
            parts += [f"\nKafka {kafkas}:\n\n{table}" for kafkas, table in self._tables(OTHERS, columns)]
        parts.append(f"\n### Notes on cells\n\n{self._notes((*CLIENTS, *OTHERS), COLUMNS)}")
        return "".join(parts)

    def _tables(self, clients: Sequence[Client], columns: Sequence[str]) -> list[tuple[str, str]]:
        """Return the distinct tables, each with the Kafka versions it is of."""
        kafkas_of: dict[str, list[str]] = {}
        for kafka in KAFKAS:
            kafkas_of.setdefault(self._table(kafka, clients, columns), []).append(kafka)
        return [(" and ".join(kafkas), table) for table, kafkas in kafkas_of.items()]

    def _table(self, kafka: str, clients: Sequence[Client], columns: Sequence[str]) -> str:
        lines = [_row(["", *columns]), _row(["---"] * (len(columns) + 1))]
        for client in clients:
            found = [self.cells.get((kafka, str(client), column)) for column in columns]
            lines.append(_row([str(client), *(cell.state if cell else "not run" for cell in found)]))
        return "".join(lines)

    def _notes(self, clients: Sequence[Client], columns: Sequence[str]) -> str:
        """Return a row for each note; of a cell that is ok with all Kafka versions the newest one's."""
        noted: dict[tuple[str, Cell], dict[str, list[str]]] = {}
        for client in clients:
            for column in columns:
                for kafka, cell in self._notable_cells(str(client), column):
                    noted.setdefault((str(client), cell), {}).setdefault(column, []).append(kafka)
        rows: dict[tuple[str, Cell], list[str]] = {}
        for (name, cell), found in noted.items():
            features = [
                column if tuple(kafkas) == tuple(KAFKAS) else f"{column} ({', '.join(kafkas)})"
                for column, kafkas in found.items()
            ]
            rows.setdefault((", ".join(features), cell), []).append(name)
        head = [_row(["client", "feature", "cell", "what was done, or why not"]), _row(["---"] * 4)]
        return "".join(
            head
            + [
                _row([", ".join(names), shown, cell.state, cell.note])
                for (shown, cell), names in rows.items()
            ]
        )

    def _notable_cells(self, client: str, column: str) -> list[tuple[str, Cell]]:
        cells = [(kafka, self.cells.get((kafka, client, column))) for kafka in KAFKAS]
        found = [(kafka, cell) for kafka, cell in cells if cell is not None and cell.is_notable]
        are_alike = len(found) > 1 and all(cell.state == OK for _, cell in found)
        return found[:1] if are_alike else found


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
    return _replaced(document, BEGIN, END, matrix.to_markdown())


def with_logins(document: str, matrix: Matrix) -> str:
    """The same of the part about logins."""
    return _replaced(document, LOGINS_BEGIN, LOGINS_END, matrix.logins_to_markdown())


def _replaced(document: str, first: str, last: str, text: str) -> str:
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"the markers are missing: {first.strip()} and {last.strip()}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def main() -> str | None:
    """None, or what is wrong."""
    if not JSON_FILE.exists():
        return f"no {JSON_FILE.name}: run `make clients` first"
    matrix = Matrix.from_json(JSON_FILE.read_text())
    problems = []
    for put, missing in (
        (with_matrix, matrix.missing()),
        (with_logins, matrix.missing(LOGIN_CLIENTS, LOGINS)),
    ):
        if missing:
            problems.append(
                f"{len(missing)} cells were not run, so their part stays: {', '.join(missing[:3])} ..."
            )
        else:
            DOCUMENT.write_text(put(DOCUMENT.read_text(), matrix))
    return "\n".join(problems) or None


if __name__ == "__main__":
    sys.exit(main())
