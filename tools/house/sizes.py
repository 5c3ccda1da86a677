"""Measure the size of the product without running it: `python -m tools.house.sizes [--root FOLDER] [--json]`.

The table is the one of docs/decisions/0025. Settings keys and options are counted by importing the product of `--root`,
everything else is read from the sources.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tools.house.mutants import Function
from tools.house.tree import ROOT, product_files, test_files, tool_files

MOST_ATTRIBUTES, MOST_METHODS, LONGEST_CHAIN, MOST_COMPLEX = 20, 30, 2, 14
ALL_NOUN_CLAUSES = re.compile(r"\b(who|whom|whose|what|whoever|whatever)\b", re.IGNORECASE)
NOUN_CLAUSES = re.compile(r"\b(who|what|whose)\b", re.IGNORECASE)
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def lines(files: Iterable[Path]) -> int:
    return sum(len(text(file).splitlines()) for file in files)


@cache
def text(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(text(file))


def docstrings(module: ast.Module) -> Iterator[ast.Expr]:
    """Yield the strings that stand as statements: docstrings, and those below an attribute or a constant."""
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield node


def code_lines(file: Path) -> int:
    """Return the number of lines that hold code: no docstring, no comment, not blank."""
    held = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text(file)).readline):
        if token.type not in NOT_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in docstrings(tree(file)):
        held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


class Classes:
    """Our own classes, by name; bases are found by name too, in the same file first."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._all = defaultdict[str, list[tuple[Path, ast.ClassDef]]](list)
        for file in files:
            for node in ast.walk(tree(file)):
                if isinstance(node, ast.ClassDef):
                    self._all[node.name].append((file, node))

    def __iter__(self) -> Iterator[tuple[Path, ast.ClassDef]]:
        return (one for same in self._all.values() for one in same)

    def bases(self, file: Path, node: ast.ClassDef) -> Iterator[tuple[Path, ast.ClassDef]]:
        for name in base_names(node):
            same = self._all.get(name, [])
            yield from [one for one in same if one[0] == file and one[1] is not node][:1] or same[:1]

    def lineage(self, file: Path, node: ast.ClassDef) -> list[ast.ClassDef]:
        """Return a class and all of our classes that it inherits."""
        above = [one for base in self.bases(file, node) for one in self.lineage(*base)]
        return list(dict.fromkeys([node, *above]))

    def depth(self, file: Path, node: ast.ClassDef) -> int:
        """Return how many of our classes the longest chain has, this one and protocols included."""
        return 1 + max((self.depth(*base) for base in self.bases(file, node)), default=0)


def base_names(node: ast.ClassDef) -> list[str]:
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in plain]


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes of one class: annotated or in slots in its body, or assigned to `self` in a method."""
    found = {
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    for one in node.body:
        match one:
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                found |= {str(name.value) for name in ast.walk(value) if isinstance(name, ast.Constant)}
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def methods(node: ast.ClassDef) -> set[str]:
    return {one.name for one in node.body if isinstance(one, Function)}


def too_complex(root: Path, files: list[Path]) -> int:
    """Return how many functions are above the bound, as ruff counts."""
    bound = f"lint.mccabe.max-complexity = {MOST_COMPLEX}"
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--config", bound]
    said = subprocess.run([*ruff, "--output-format=json", *files], cwd=root, capture_output=True, text=True)
    return len(json.loads(said.stdout))


def settings_keys(model: Any) -> Iterator[str]:
    """Yield the keys that a file may set, `section.key`; a list or a table of sections counts as one section."""
    for name, field in model.model_fields.items():
        sections = list(_models(field.annotation))
        key = field.alias or name
        if not sections:
            yield key
        for section in sections:
            yield from (f"{key}.{below}" for below in settings_keys(section))


def _models(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models(inner)


def options(command: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the command and the option, for all commands below one."""
    for one in command.params:
        if one.param_type_name == "option":
            yield path, one.opts[0]
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{path} {name}".strip())


def imported(root: Path) -> dict[str, int]:
    """Count what is read from the product as it runs, of another checkout too."""
    program = "from tools.house.sizes import count_imported; count_imported()"
    path = {"PYTHONPATH": f"{root}:{ROOT}", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=path, capture_output=True, text=True, check=True
    )
    return dict(json.loads(said.stdout))


def count_imported() -> None:
    import typer

    from pidgate.cli.app import app
    from pidgate.gateway.config.settings import Settings
    from pidgate.pipeline.cli import app as pipeline

    found, jobs = (set(options(typer.main.get_command(one))) for one in (app, pipeline))
    keys = {key.replace("quotas.unidentified.", "quotas.users.") for key in settings_keys(Settings)}
    print(
        json.dumps(
            {
                "settings keys, each path once": len(set(settings_keys(Settings))),
                "settings keys, those of quotas.unidentified counted with quotas.users": len(keys),
                "CLI options, each command's": len(found),
                "CLI options, different names": len({name for _, name in found}),
                "CLI options of `pidgate pipeline`, each job's": len(jobs),
                "CLI options, different names, with `pidgate pipeline`": len(
                    {name for _, name in found | jobs}
                ),
            }
        )
    )


def table(root: Path) -> dict[str, Any]:
    """Return what is measured, by its name in the table."""
    product, tools, tests = product_files(root), tool_files(root), test_files(root)
    classes = Classes(product)
    families = [(node, classes.lineage(file, node), classes.depth(file, node)) for file, node in classes]
    prose = [node.value.value for file in product for node in docstrings(tree(file))]  # type: ignore[attr-defined]
    words = sum(len(one.split()) for one in prose)
    clauses, all_clauses = (
        round(1000 * sum(len(words_in.findall(one)) for one in prose) / words, 1)
        for words_in in (NOUN_CLAUSES, ALL_NOUN_CLAUSES)
    )

    def names(nodes: Iterable[ast.ClassDef]) -> str:
        found = [node.name for node in nodes]
        return f"{len(found)}: {', '.join(sorted(found))}" if found else "0"

    own = names(node for node, *_ in families if len(attributes(node)) > MOST_ATTRIBUTES)
    return {
        "lines installed": lines(product),
        "the same without docstrings, comments and blank lines": sum(code_lines(file) for file in product),
        "files installed": len(product),
        "lines of tools": lines(tools),
        "lines of tests": lines(tests),
        **imported(root),
        "Protocol classes": names(node for node, *_ in families if "Protocol" in base_names(node)),
        f"classes with more than {MOST_ATTRIBUTES} attributes of their own": own,
        f"classes with more than {MOST_ATTRIBUTES} attributes, inherited ones included": names(
            node
            for node, line, _ in families
            if len(set[str]().union(*map(attributes, line))) > MOST_ATTRIBUTES
        ),
        f"classes with more than {MOST_METHODS} methods, inherited ones included": names(
            node for node, line, _ in families if len(set[str]().union(*map(methods, line))) > MOST_METHODS
        ),
        f"classes at the end of an own chain above {LONGEST_CHAIN}": names(
            node for node, _, depth in families if depth > LONGEST_CHAIN
        ),
        f"functions above complexity {MOST_COMPLEX}": too_complex(root, product),
        "who, what, whose in 1,000 words of docstrings": clauses,
        "the same with whom, whoever, whatever": all_clauses,
        "longest files": ", ".join(
            f"{file.relative_to(root)} {lines([file])}"
            for file in sorted(product, key=lambda f: -lines([f]))[:5]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="top of a checkout")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = table(options.root.resolve())
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(
            *(
                f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
                for name, value in rows.items()
            ),
            sep="\n",
        )


if __name__ == "__main__":
    main()
