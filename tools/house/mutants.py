"""The mutants of a Python file: every small change of a function body that a good test should notice. PURE.

A mutant is found by its number within the file, so it can be made again from the source alone. Strings, annotations,
default arguments and module constants are not changed: the runner replaces the code of functions, nothing else.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult},
    **{ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}  # fmt: skip
NEGATED_BY_SWAP = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


@dataclass(frozen=True)
class Mutant:
    """One change; `lines` are those of the changed expression or statement."""

    path: str
    number: int
    function: str
    lines: tuple[int, int]
    operator: str
    change: str


Change = tuple[ast.AST, str, str, Callable[[], None]]
"""The node, the operator's name, what changes in words, and how to make the change."""


def mutants(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of the source."""
    return [
        Mutant(path, number, name, (node.lineno, node.end_lineno), operator, change)  # type: ignore[attr-defined]
        for number, (name, (node, operator, change, _)) in enumerate(_changes(ast.parse(source)))
    ]


def mutated(source: str, number: int) -> ast.Module:
    """Return the tree of a file with one change made."""
    tree = ast.parse(source)
    for place, (_, (*_, make)) in enumerate(_changes(tree)):
        if place == number:
            make()
            break
    return ast.fix_missing_locations(tree)


def _changes(tree: ast.Module) -> list[tuple[str, Change]]:
    return [(name, change) for name, function in functions(tree) for change in _in_body(function)]


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods with their qualified names; those inside of a function belong to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{within}{node.name}.")
        elif isinstance(node, ast.stmt):
            yield from functions(node, within)


def _in_body(function: Function) -> Iterator[Change]:
    for statement in function.body:
        yield from _within(statement, function.body)


def _within(node: ast.AST, block: list[ast.stmt] | None) -> Iterator[Change]:
    """Yield the changes of a node and of all below it; `block` is the list that a statement stands in."""
    if isinstance(node, ast.stmt) and block is not None:
        yield from _of_statement(node, block)
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and isinstance(
            node, (Function, ast.AnnAssign)
        ):
            continue
        yield from _condition(node, name, value)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _within(child, value if isinstance(value, list) else None)


def _of_statement(node: ast.stmt, block: list[ast.stmt]) -> Iterator[Change]:
    def replace(new: ast.stmt) -> Callable[[], None]:
        return lambda: block.__setitem__(block.index(node), ast.copy_location(new, node))

    match node:
        case ast.Expr(value=ast.Constant()):
            pass  # a docstring
        case ast.Return(value=ast.Constant(value=None | False)):
            pass  # None is as false; True instead of False is another mutant
        case ast.Return(value=ast.expr() as value):
            yield node, "return", f"return None, not {_text(value)}", replace(ast.Return(ast.Constant(None)))
        case (
            ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            | ast.Expr()
            | ast.AugAssign()
            | ast.Delete()
        ):
            yield node, "delete", f"delete {_text(node)}", replace(ast.Pass())
        case ast.Raise() | ast.Break() | ast.Continue():
            yield node, "delete", f"delete {_text(node)}", replace(ast.Pass())


def _of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool(value)):
            yield node, "constant", f"{not value}, not {value}", _setting(node, "value", not value)
        case ast.Constant(value=int(value)):
            for other in (value + 1, value - 1):
                yield node, "constant", f"{other}, not {value}", _setting(node, "value", other)
        case ast.Compare(ops=ops):
            for place, old in enumerate(ops):
                new = SWAPPED[type(old)]()
                words = f"{_word(new)}, not {_word(old)}: {_text(node)}"
                yield node, "comparison", words, lambda place=place, new=new: ops.__setitem__(place, new)  # type: ignore[misc]
        case ast.BoolOp(op=old) | ast.BinOp(op=old) if type(old) in SWAPPED:
            new = SWAPPED[type(old)]()
            kind = "and/or" if isinstance(node, ast.BoolOp) else "arithmetic"
            yield node, kind, f"{_word(new)}, not {_word(old)}: {_text(node)}", _setting(node, "op", new)
        case ast.Call(func=ast.Name(id="min" | "max" as old) as name):
            yield (
                node,
                "min/max",
                f"not {_text(node)}",
                _setting(name, "id", {"min": "max", "max": "min"}[old]),
            )


def _condition(node: ast.AST, name: str, value: object) -> Iterator[Change]:
    """Negate a condition, unless a swapped comparison does the same."""
    conditions = [(value, lambda new: setattr(node, name, new))] if name in ("test", "guard") else []
    if name == "ifs":
        conditions = [(one, lambda new, i=i: value.__setitem__(i, new)) for i, one in enumerate(value)]  # type: ignore
    for condition, put in conditions:
        match condition:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield condition, "negate", f"without not: {_text(condition)}", lambda o=operand, p=put: p(o)  # type: ignore
            case ast.Compare(ops=[ast.cmpop() as only]) if isinstance(only, NEGATED_BY_SWAP):
                pass
            case ast.expr():
                new = ast.copy_location(ast.UnaryOp(ast.Not(), condition), condition)
                yield condition, "negate", f"not ({_text(condition)})", lambda n=new, p=put: p(n)  # type: ignore


def _setting(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _word(operator: ast.AST) -> str:
    return type(operator).__name__


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:80]
