"""What the command says when the report is written: its findings in short, for a person or a program."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from pidgate.pipeline.report.findings import Weight, findings, summary
from pidgate.pipeline.report.rows import Found
from pidgate.pipeline.report.source import JOB_OF
from pidgate.pipeline.report.words import size

_LOOKS = {Weight.BAD: "bold red", Weight.WARN: "yellow", Weight.GOOD: "green"}
_NOT_ALWAYS = frozenset(("detector_accuracy", "detector_confusion"))
"""Only where users have labels."""


def tell(found: Found, path: str, in_bytes: int, *, as_json: bool) -> None:
    """To stderr for a person; with `as_json` an object on stdout instead."""
    missing = sorted({JOB_OF[name] for name in JOB_OF.keys() - found.has - _NOT_ALWAYS})
    if as_json:
        said = [asdict(one) for one in findings(found)]
        print(json.dumps({"report": path, "summary": summary(found), "findings": said, "not_run": missing}))
        return
    console = Console(stderr=True)
    # Text, not markup: names may hold brackets.
    console.print(Text(summary(found)))
    for one in findings(found):
        console.print(Text.assemble("  ", (one.headline, _LOOKS[one.weight])))
    if missing:
        console.print(Text(f"Not in it, since they were not run: {', '.join(missing)}.", style="dim"))
    console.print(Text(f"{size(in_bytes)} written to {path}: open it in a browser; it needs no network."))
