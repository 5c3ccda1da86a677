"""The options that jobs have in common."""

from typing import Annotated

import typer

TablesOption = Annotated[
    str, typer.Option("--tables", help="Root folder of all tables; local, or any that Spark can write.")
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master (default: local[*], or what spark-submit says).")
]
MemoryOption = Annotated[str, typer.Option("--memory", help="Heap of the JVM when embedded: 2g, 900m.")]

DEFAULT_TABLES = "pidgate-tables"
DEFAULT_MEMORY = "2g"
