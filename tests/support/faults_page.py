"""The table of docs/explanation/faults.md: `python -m tests.support.faults_page` writes it anew (`make docs`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.architecture_page import generated
from tests.support.fault_matrix import MATRIX
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "faults.md"


def matrix() -> str:
    """Return a table for each group of faults, with links to the files of its tests."""
    parts = []
    for title, group in MATRIX.items():
        lines = [
            f"## {title}",
            "",
            "| fault | clients see | guaranteed | test |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row.fault} | {row.clients_see} | {row.guaranteed} | {_links(row.tests)} |" for row in group
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _links(tests: tuple[str, ...]) -> str:
    paths = dict.fromkeys(test.partition("::")[0] for test in tests)
    return ", ".join(f"[{Path(path).stem}](../../tests/{path})" for path in paths)


PARTS: Final = {"faults": matrix}


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8"), PARTS), "utf-8")
