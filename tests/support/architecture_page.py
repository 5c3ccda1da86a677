"""What docs/explanation/architecture.md shows of the code: rooms, their imports, a connection's states.

`python -m tests.support.architecture_page` writes them anew (`make docs`); a test holds the page to them.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final

from pidgate.gateway.proxy import connection_state
from tests.support.import_graph import FOLDERS, PACKAGE, ROOT, drawing, room_of, sources

PAGE: Final = ROOT / "docs" / "explanation" / "architecture.md"


def first_line(path: str) -> str:
    """Return the first line of a file's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    return text.split("\n", 1)[0].removesuffix(" PURE.").rstrip(".")


def map_of_rooms() -> str:
    """Return a table of the rooms: what each is for, by its own docstring, and the files in it."""
    files: dict[str, list[str]] = {}
    for path in sources(*FOLDERS):
        files.setdefault(room_of(path), []).append(path)
    lines = ["| room | what it holds | files |", "| --- | --- | --- |"]
    for room, paths in sorted(files.items()):
        names = [path.removeprefix(f"{PACKAGE}/{room}/").removesuffix(".py") for path in paths]
        shown = sorted(
            {name.split("/")[0] + "/" * ("/" in name) for name in names if not name.startswith("__")}
        )
        lines.append(f"| `{room}` | {first_line(f'{PACKAGE}/{room}/__init__.py')} | {', '.join(shown)} |")
    return "\n".join(lines)


def rooms_drawn() -> str:
    """Return the flowchart of who imports whom."""
    return f"```mermaid\n{drawing().rstrip()}\n```"


def states_drawn() -> str:
    """Return the flowchart of a connection's states."""
    return f"```mermaid\n{connection_state.diagram().rstrip()}\n```"


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "rooms": rooms_drawn,
    "map": map_of_rooms,
    "states": states_drawn,
}


def generated(page: str, parts: Mapping[str, Callable[[], str]] = PARTS) -> str:
    """Return a page with every part between its marks drawn anew. Raises KeyError for an unknown mark."""

    def anew(match: re.Match[str]) -> str:
        return f"{match[1]}\n{parts[match[2]]()}\n{match[3]}"

    return re.sub(r"(<!-- from the code: (\w+) -->)\n.*?\n(<!-- end -->)", anew, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8")), "utf-8")
