"""Write docs/reference/commands.md from the options: `python -m tests.support.commands_page` (`make docs`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import typer

from pidgate.cli.app import app
from pidgate.pipeline.cli import app as pipeline_app
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "commands.md"

_INTRODUCTION: Final = """# Commands

For operators: every command of `pidgate` and its options, as `--help` shows them. The page is generated (`make docs`).

Exit code 0 means done, 1 failed or refused, and 2 a mistake in the command line or in a file.
"""
_SHARED_BY: Final = 2
"""An option that so many commands have with the same words is described once."""

_GATEWAY: Final = ("`--config`", "`--admin`", "`--ca-file`", "`--token-file`", "`--json`")

Row = tuple[str, str]


# typer may use click's classes or its own copies of them; both look alike.
Command = Any


def commands(group: Command, name: str) -> Iterator[tuple[str, Command]]:
    """Yield the full name of each command below a group."""
    if not hasattr(group, "commands"):
        yield name, group
        return
    for below, command in group.commands.items():
        if (name, below) != ("pidgate", "pipeline"):
            yield from commands(command, f"{name} {below}")


def _rows(command: Command) -> Iterator[Row]:
    for one in command.params:
        if one.param_type_name != "option" or "--help" in one.opts:
            continue
        shown = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        if not one.is_flag and one.metavar:
            shown = f"{shown} `{one.metavar}`"
        text = " ".join((one.help or "").split()).replace("|", r"\|")
        if getattr(one, "show_default", False) and one.default not in (None, "", False, 0, ()):
            text += f" Default: `{one.default}`."
        yield shown, text


def _names(rows: list[Row]) -> str:
    """Return the names of options, the five that select gateways as one."""
    names = [shown.partition(", ")[0].partition(" ")[0] for shown, _ in rows]
    if set(_GATEWAY) <= set(names):
        names = ["the gateway options", *(name for name in names if name not in _GATEWAY)]
    return ", ".join(names)


def _table(rows: list[Row]) -> Iterator[str]:
    yield from ("", "| option | |", "| --- | --- |")
    yield from (f"| {shown} | {text} |" for shown, text in rows)


def page() -> str:
    """Return docs/reference/commands.md."""
    all_commands = [
        *commands(typer.main.get_command(app), "pidgate"),
        *commands(typer.main.get_command(pipeline_app), "pidgate pipeline"),
    ]
    uses = Counter(row for _, command in all_commands for row in _rows(command))
    shared = [row for row, count in uses.items() if count >= _SHARED_BY]
    lines = [_INTRODUCTION.rstrip(), "", "## Options of several commands", *_table(shared)]
    lines += ["", f"The gateway options are {', '.join(_GATEWAY)}: which gateways are asked, and how."]
    for name, command in all_commands:
        arguments = [
            one.metavar or one.name or "" for one in command.params if one.param_type_name == "argument"
        ]
        rows = list(_rows(command))
        lines += ["", f"## {' '.join([name, *arguments])}", ""]
        lines.append(" ".join((command.help or "").partition("\n\n")[0].split()))
        further = [row for row in rows if row in shared]
        if further:
            lines[-1] += f" Also {_names(further)}."
        own = [row for row in rows if row not in shared]
        if own:
            lines += _table(own)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
