"""Who imports whom in pidgate: file by file and room by room, read from the source as it stands (ast).

Imports inside functions and under TYPE_CHECKING count too. A folder is one of `pidgate/` or `tools/`, or one at the top
of the repository. A room is a folder or, of the gateway, a folder in it; files in `pidgate/` itself are in no room.

`python -m tests.support.import_graph` prints the drawing that docs/explanation/architecture.md holds.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "pidgate"
FOLDERS = tuple(sorted(file.parent.name for file in (ROOT / PACKAGE).glob("*/__init__.py")))
TOOLS = tuple(sorted(file.parent.name for file in (ROOT / "tools").glob("*/__init__.py")))

Graph = Mapping[str, frozenset[str]]


def sources(*folders: str) -> list[str]:
    """Return every Python file below these folders, relative to the root, with slashes."""
    return sorted(
        file.relative_to(ROOT).as_posix()
        for folder in folders
        for file in place_of(folder).glob("*.py" if folder == PACKAGE else "**/*.py")
    )


def place_of(folder: str) -> Path:
    """Return where a folder is: in the package, among the tools or at the top of the repository."""
    return ROOT / (PACKAGE if folder in FOLDERS else "tools" if folder in TOOLS else "") / folder


def folder_of(path: str) -> str:
    """Return the folder of a file: `quota`, `sandbox`, `tests`; `pidgate` for a file of the package itself."""
    parts = path.split("/")
    return parts[1] if parts[0] in (PACKAGE, "tools") and len(parts) > 2 else parts[0]


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of every module, or name of a module, that is imported absolutely."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import stays inside its package; a package may import itself.
            if node.level == 0 and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
            yield "importlib"


def file_of(module: str) -> str | None:
    """Return the file that an imported name of ours, or of our tests, comes from; None for a module of others."""
    parts = module.split(".")
    if parts[0] not in (PACKAGE, "tools", "tests"):
        return None
    while parts:
        path = "/".join(parts)
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if (ROOT / candidate).is_file():
                return candidate
        parts.pop()
    return None


def imports_of(path: str) -> frozenset[str]:
    """Return the files of ours that a file imports."""
    return frozenset(
        found
        for module in imported_modules(ast.parse((ROOT / path).read_text("utf-8")))
        if (found := file_of(module)) is not None and found != path
    )


@cache
def file_imports() -> Graph:
    """Return, for every file of the package's folders, the files of ours that it imports."""
    return {path: imports_of(path) for path in sources(*FOLDERS, *TOOLS)}


def room_of(path: str) -> str:
    """Return the room of a file: `quota`, `gateway/proxy`."""
    folder, parts = folder_of(path), path.split("/")
    return f"gateway/{parts[2]}" if folder == "gateway" and len(parts) > 3 else folder


def room_imports() -> Graph:
    """Return, for every room, the other rooms that its files import."""
    rooms: dict[str, set[str]] = {}
    for path, imported in file_imports().items():
        rooms.setdefault(room_of(path), set()).update(room_of(other) for other in imported)
    return {room: frozenset(others - {room}) for room, others in rooms.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return every set of nodes that can reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            circle = sorted(stack[at:])
            del stack[at:]
            if len(circle) > 1:
                found.append(circle)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def reduced(graph: Graph) -> Graph:
    """Return the graph without the arrows that longer ways already show (transitive reduction); it has no circles."""

    def reachable(nodes: Iterable[str]) -> set[str]:
        seen: set[str] = set()
        todo = list(nodes)
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += graph.get(node, ())
        return seen

    return {
        node: frozenset(other for other in others if other not in reachable(others - {other}))
        for node, others in graph.items()
    }


def drawing() -> str:
    """Return the package's rooms and their imports as a Mermaid flowchart; implied arrows are left out."""
    lines = ["flowchart TD"]
    package = {room: others for room, others in room_imports().items() if room.split("/")[0] in FOLDERS}
    for room, others in sorted(reduced(package).items()):
        node = room.replace("/", "_")
        label = f'{node}["{room}"]' if node != room else node
        if others:
            lines.append(f"  {label} --> {' & '.join(sorted(other.replace('/', '_') for other in others))}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(drawing(), end="")
