"""The command line of `pidgate quotas`.

Only parses. `pidgate quotas --alter ...` and `--describe`, as kafka-configs spells it, are alter and describe; what
names no command is describe.
"""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from pidgate.cli.options import (
    AlterOptions,
    BlockOptions,
    DeleteOptions,
    EntityOptions,
    RaiseOptions,
    RefillOptions,
    ReleaseOptions,
    command,
)

_IN_KAFKA: Final = {"--describe": "describe", "--alter": "alter"}
_HELP: Final = ("--help",)


class _AsInKafka(TyperGroup):
    """Finds the command among the arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in _HELP):
            found = [_IN_KAFKA[word] for word in args if word in _IN_KAFKA]
            rest = [word for word in args if word not in _IN_KAFKA]
            args = [found[0] if found else "describe", *rest]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_AsInKafka,
    help="Show and set the quotas of running gateways, for the whole fleet at once.",
    no_args_is_help=False,
)


@command(app)
def describe(options: EntityOptions) -> int:
    """Show what is in force, where it comes from, who set it and when."""
    from pidgate.cli import quota_describe

    return quota_describe.describe(options)


@command(app)
def diff(options: EntityOptions) -> int:
    """Show what was set at run time, beside the file's quotas."""
    from pidgate.cli import quota_describe

    return quota_describe.diff(options)


@command(app)
def alter(options: AlterOptions) -> int:
    """Set or remove producer_ids_rate and mode, as kafka-configs does."""
    from pidgate.cli import quota_change

    return quota_change.alter(options)


@command(app)
def delete(options: DeleteOptions) -> int:
    """Remove the rate: what holds for the default user holds, whatever the file says."""
    from pidgate.cli import quota_change

    return quota_change.delete(options)


@command(app)
def reset(options: EntityOptions) -> int:
    """Forget what was set at run time: the file holds again."""
    from pidgate.cli import quota_change

    return quota_change.reset(options)


@command(app, "raise")
def raise_(options: RaiseOptions) -> int:
    """Give a user more than it has, for a while: raise alice 500 --for 2h."""
    from pidgate.cli import quota_change

    return quota_change.raise_rate(options)


@command(app)
def block(options: BlockOptions) -> int:
    """Refuse every new producer id of a user; its running producers go on."""
    from pidgate.cli import quota_change

    return quota_change.block(options)


@command(app)
def release(options: ReleaseOptions) -> int:
    """Let one producer id in, uncharged, when it comes back."""
    from pidgate.cli import quota_change

    return quota_change.execute(options, "release", options.user, options.producer_id)


@command(app)
def refill(options: RefillOptions) -> int:
    """Fill a user's bucket: all of its burst, now."""
    from pidgate.cli import quota_change

    return quota_change.execute(options, "refill", options.user, None)
