"""What whoever runs a gateway, or a part of it, has to know of it, and why it cannot begin."""

from typing import Protocol


class RunsAndDrains(Protocol):
    """`start`, then `until_stopped`; `drain` ends it, and may be called more than once. `reload`: SIGHUP came."""

    async def start(self) -> None: ...
    async def until_stopped(self) -> None: ...
    async def drain(self) -> None: ...
    def reload(self) -> None: ...


class CannotStart(Exception):
    """A part of the gateway cannot start. The message names cause and remedy."""
