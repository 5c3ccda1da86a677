"""The command line of `pidgate quotas`.

This module only parses. `pidgate quotas --alter ...` and `--describe` run alter and describe, as in
kafka-configs. The default command is describe.
"""

from __future__ import annotations

from typing import Any, Final

import typer

from pidgate.cli.options import (
    AlterOptions,
    BlockOptions,
    DescribeOptions,
    DiffOptions,
    GraceOptions,
    RaiseOptions,
    RefillOptions,
    ReleaseOptions,
    ResetOptions,
    add_commands,
)
from pidgate.help_text import PLAIN, CommandGroup

_IN_KAFKA: Final = {"--describe": "describe", "--alter": "alter"}
_HELP: Final = ("-h", "--help")


class _AsInKafka(CommandGroup):
    """Command group that finds its command among the arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # A shell that completes wants the commands, not those of the default one.
        if ctx.resilient_parsing:
            return list(super().parse_args(ctx, args))
        if not args or (args[0].startswith("-") and args[0] not in _HELP):
            found = [_IN_KAFKA[word] for word in args if word in _IN_KAFKA]
            rest = [word for word in args if word not in _IN_KAFKA]
            args = [found[0] if found else "describe", *rest]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_AsInKafka,
    help="Show and set the quotas of running gateways, for the whole fleet at once.",
    no_args_is_help=False,
    **PLAIN,
)


COMMANDS = {
    "describe": (DescribeOptions, "quota_describe.describe"),
    "diff": (DiffOptions, "quota_describe.diff"),
    "alter": (AlterOptions, "quota_change.alter"),
    "reset": (ResetOptions, "quota_change.reset"),
    "raise": (RaiseOptions, "quota_change.raise_"),
    "block": (BlockOptions, "quota_change.block"),
    "grace": (GraceOptions, "quota_change.grace"),
    "release": (ReleaseOptions, "quota_change.release"),
    "refill": (RefillOptions, "quota_change.refill"),
}
add_commands(app, COMMANDS)
