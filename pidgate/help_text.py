"""The help of the commands, for typer: plain lines that wrap between words at any width."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

PLAIN: Final[dict[str, Any]] = {
    # The panels of rich cut the names of options and commands on a narrow terminal.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Arguments of each typer.Typer."""


class CommandGroup(TyperGroup):
    """A group of commands. Its help shows the whole first paragraph of each; click cuts it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_paragraph(found.help)) for name, found in commands if found is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())
