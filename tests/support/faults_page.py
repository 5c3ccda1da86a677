"""The table of docs/explanation/faults.md: `python -m tests.support.faults_page` writes it anew (`make docs`)."""

from __future__ import annotations

from typing import Final

from tests.support.architecture_page import generated
from tests.support.fault_matrix import MATRIX
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "faults.md"


def matrix() -> str:
    """Return a table for each group of faults; a test is a link to its file."""
    parts = []
    for title, group in MATRIX.items():
        lines = [
            f"## {title}",
            "",
            "| fault | clients see | guaranteed | test |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row.fault} | {row.clients_see} | {row.guaranteed} | {' '.join(map(_link, row.tests))} |"
            for row in group
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    shown = name.removeprefix("test_").replace("_", " ").replace("[", ": ").rstrip("]")
    return f"[{shown}](../../tests/{path})<br>"


PARTS: Final = {"faults": matrix}


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8"), PARTS), "utf-8")
