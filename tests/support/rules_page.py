"""docs/reference/rules.md, made of the `@rule` marks: `python -m tests.support.rules_page` writes it (`make docs`).

The marks are read from the source: nothing is imported, so the page needs no broker and no Java.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, get_args

from tests.support.import_graph import ROOT
from tests.support.rules import Theme

PAGE: Final = ROOT / "docs" / "reference" / "rules.md"

TITLES: Final[dict[Theme, str]] = {
    "order": "Order and loss",
    "identity": "Identity",
    "protocol": "Protocol",
    "mutes": "Mutes and byte rates",
    "cost": "What an id costs",
    "failures": "Failures of the quota",
    "fleet": "Restarts and fleets",
    "memory": "Memory and work per turn",
    "connections": "Connections and the admin address",
}

PROMISES: Final[dict[str, tuple[str, ...]]] = {
    "An acknowledged record is in the log": ("No acknowledged record is lost, doubled or reordered.",),
    "A refusal is retried by every client family": ("Every client family retries a refused batch.",),
    "No real broker address": ("No real broker address reaches a client.",),
    "Every API and version": (
        "Clients are offered the broker's versions, cut to the versions the gateway knows.",
        "Every API that can create producer state is judged or withheld.",
    ),
    "Hostile clients are part of the tests": (
        "A quota belongs to the user, whatever connection, address or gateway a request uses.",
        "A user holds at most as much memory for frames and filters as is left to others.",
        "In one turn of the event loop each account has 10 ms of work, and one waiting account is served.",
    ),
    "An error inside the quota code": ("An error inside the quota code forwards traffic and is counted.",),
    "One quota over restarts": (
        "A restored state remembers its ids and balances.",
        "An id admitted by another gateway is charged here once; a refresh there is free.",
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
    ),
    "A fresh gateway": ("Running producers are admitted uncharged and remembered during grace.",),
}
"""The rules behind each bullet of README.md, "What it promises", by the bullet's first words."""

_HEAD: Final = """\
# Rules

For everyone who changes the quota or the proxy: each rule and the test that fails if it is broken. A rule in bold carries a promise of the README. The page is generated from the `@rule` marks of the tests (`make docs`); [architecture.md](../explanation/architecture.md) explains the mechanisms.
"""  # noqa: E501
_PROMISES: Final = re.compile(r"^## What it promises\n(.*?)^## ", re.MULTILINE | re.DOTALL)


class Mark(NamedTuple):
    """One `@rule` on one test. `test`: "path::function"."""

    sentence: str
    theme: str
    test: str


def marks() -> list[Mark]:
    """Return the marks of all tests in the order of files and lines."""
    return [mark for path in sorted((ROOT / "tests").rglob("test_*.py")) for mark in _marks_of(path)]


def _marks_of(path: Path) -> Iterator[Mark]:
    source = path.read_text("utf-8")
    if "import rule" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "rule":
                sentence, theme = (ast.literal_eval(value) for value in call.args)
                yield Mark(sentence, theme, f"{path.relative_to(ROOT).as_posix()}::{node.name}")


def promises() -> list[str]:
    """Return the bullets of README.md that promise something, without their dash."""
    found = _PROMISES.search((ROOT / "README.md").read_text("utf-8"))
    assert found
    return [line.removeprefix("- ") for line in found.group(1).splitlines() if line.startswith("- ")]


def page() -> str:
    """Return docs/reference/rules.md."""
    found = marks()
    parts = [_HEAD.rstrip()]
    for theme in get_args(Theme):
        parts.append(f"\n## {TITLES[theme]}\n")
        sentences = dict.fromkeys(mark.sentence for mark in found if mark.theme == theme)
        parts += [_line(one, [mark.test for mark in found if mark.sentence == one]) for one in sentences]
    return "\n".join(parts) + "\n"


def _line(sentence: str, tests: list[str]) -> str:
    links = []
    for test in tests:
        path, _, name = test.partition("::")
        links.append(f"[{name}](../../{path})")
    promised = any(sentence in rules for rules in PROMISES.values())
    return f"- {f'**{sentence}**' if promised else sentence} {', '.join(links)}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
