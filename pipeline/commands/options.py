"""The options that jobs have in common."""

from typing import Annotated

import typer

from pidgate import units
from pidgate.pipeline.errors import BadOption

TablesOption = Annotated[
    str, typer.Option("--tables", help="Root folder of all tables; local, or any that Spark can write.")
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master (default: local[*], or what spark-submit says).")
]
MemoryOption = Annotated[str, typer.Option("--memory", help="Heap of the JVM when embedded: 2g, 900m.")]

DEFAULT_TABLES = "pidgate-tables"
DEFAULT_MEMORY = "2g"


def duration_ms(text: str, option: str) -> int:
    """Read a duration such as 30s, 15m, 24h or 7d as milliseconds. Raises BadOption, which names the option."""
    try:
        return units.duration_ms(text)
    except ValueError as error:
        raise BadOption(f"{option}: {error}") from error
