"""How tasks of a run are ended: what went wrong in one is a mistake of ours, and must not be lost with it."""

from __future__ import annotations

import asyncio


def end_task(task: asyncio.Future[None]) -> None:
    """Cancel it. Raises what it ended with, if it has ended already: none of them does by itself."""
    if task.done() and not task.cancelled():
        task.result()
    task.cancel()
