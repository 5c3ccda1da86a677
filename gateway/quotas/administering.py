"""Changes of the quotas on behalf of a connection: each is checked, those that may be made are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.quotas.administration import Administration, Kept, NotAllowed
from pidgate.quota.changes import Change

log = logger()

Done = Callable[[list[str | None] | None, Kept | None], None]
"""For each change None or why it was not made, and where those that were made are kept; None: nobody could be asked,
or nobody knows what came of it.
"""

Administer = Callable[[Sequence[Change], bool, Done], None]
"""Makes changes, or only checks them; `Done` is called once, never before this returns."""


class Administering:
    """Makes changes one after the other, in the order in which they were asked for."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    def administer(self, changes: Sequence[Change], only_check: bool, done: Done) -> None:
        task = self._loop.create_task(self._made(changes, only_check, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _made(self, changes: Sequence[Change], only_check: bool, done: Done) -> None:
        problems: list[str | None] = [self._problem(change) for change in changes]
        allowed = [change for change, problem in zip(changes, problems, strict=True) if problem is None]
        kept = None
        if allowed and not only_check:
            try:
                kept = await self._administration.change(allowed)
            except NotAllowed as error:
                problems = [problem or str(error) for problem in problems]
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"changing quotas: {error}")
                done(None, None)
                return
        done(problems, kept)

    def _problem(self, change: Change) -> str | None:
        try:
            self._administration.check(change)
        except NotAllowed as error:
            return str(error)
        return None
