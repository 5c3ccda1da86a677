"""`pidgate pipeline report`."""

from pathlib import Path
from typing import Annotated

import typer

from pidgate.pipeline.commands.options import (
    DEFAULT_MEMORY,
    DEFAULT_TABLES,
    MasterOption,
    MemoryOption,
    TablesOption,
)


def report(
    tables: TablesOption = DEFAULT_TABLES,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write (default: report.html under --tables)."),
    ] = None,
    users: Annotated[
        int, typer.Option("--users", min=0, max=500, help="How many users get a page, the worst first.")
    ] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The findings on stdout, for a program.")] = False,
    master: MasterOption = None,
    memory: MemoryOption = DEFAULT_MEMORY,
) -> None:
    """One HTML file with everything the jobs found: who burns ids and why, charts, the recommended quotas."""
    import time

    from pidgate.pipeline.report import told
    from pidgate.pipeline.report.page import page
    from pidgate.pipeline.report.publishing import publish
    from pidgate.pipeline.report.reading import found as read
    from pidgate.pipeline.session import spark_session
    from pidgate.pipeline.tables import Tables

    root = Tables(spark_session("report", master=master, memory=memory), tables)
    found = read(root, pages=users, made_ms=time.time_ns() // 1_000_000)
    text = page(found)
    told.tell(found, publish(root, text, output), len(text.encode()), as_json=as_json)
