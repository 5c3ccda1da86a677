"""Measure the product as the table in docs/decisions/0014 does: `python -m tests.support.product_size [ROOT]`.

ROOT is the top of a checkout, of another commit too; this one unless given.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.support.import_graph import ROOT, circles, file_imports

FOLDERS = (
    *("gateway", "protocol", "quota", "events", "pipeline", "history", "sandbox", "bench"),
    *("load", "who", "cli", "pidgate"),
)
LONGEST_MODULE = 400
QUESTIONS = ("What", "Who", "Whom", "Whose", "How", "Whether", "Where", "When", "Why", "Which")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(root: Path) -> dict[str, str]:
    """Return the text of every Python file of the product, by its path; links are not followed."""
    found: dict[str, str] = {}
    for file in sorted(chain.from_iterable((root / folder).rglob("*.py") for folder in FOLDERS)):
        path = file.relative_to(root)
        if not any((root / parent).is_symlink() for parent in path.parents):
            found[path.as_posix()] = file.read_text("utf-8")
    return found


def parameters(function: Function) -> int:
    """Return the number of a function's parameters, `self` and `cls` left out."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text.strip()


def rows(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield what is measured and its value, in the order of the table."""
    texts = modules(root)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    folders = Counter(path.rpartition("/")[0] for path in texts)
    sizes = [parameters(node) for node in nodes if isinstance(node, Function)]
    classes = [
        (node.end_lineno - node.lineno + 1, node.name)
        for node in nodes
        if isinstance(node, ast.ClassDef) and node.end_lineno is not None
    ]
    yield "modules", f"{len(texts)}"
    yield "lines", f"{sum(lines.values()):,}"
    yield "files in `gateway/` itself", f"{folders['gateway']}"
    yield "most files side by side", ", ".join(f"{count} ({name})" for name, count in folders.most_common(3))
    if root == ROOT:
        yield "circles between files", f"{len(circles(file_imports()))}"
    yield "longest module", f"{max(lines.values())}"
    yield f"modules above {LONGEST_MODULE} lines", f"{sum(size > LONGEST_MODULE for size in lines.values())}"
    yield "longest class", "{} ({})".format(*max(classes))
    yield (
        "functions with more than 5 / 7 parameters",
        " / ".join(f"{sum(size > most for size in sizes)}" for most in (5, 7)),
    )
    words = [text.split(maxsplit=1)[0] for tree in trees.values() for text in docstrings(tree) if text]
    yield "docstrings that begin with a question word", f"{sum(word in QUESTIONS for word in words)}"


if __name__ == "__main__":
    for name, value in rows(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT):
        print(f"| {name} | {value} |")
