"""What may be asked of a gateway's quotas, and what may be changed: by Kafka's admin API and by the admin site.

Only the shape: `Administration` is what those know who ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.changes import Change, Command
from pidgate.quota.settings import Quotas


class Kept(StrEnum):
    """Where a change is kept, once it is in force."""

    TOPIC = "topic"
    """The whole fleet has it, over restarts."""
    STATE_DIR = "state_dir"
    """This gateway has it, over restarts; the topic gets it when it can be written again."""
    MEMORY = "memory"
    """This gateway has it, until it ends; the topic, if there is one, gets it when it can be written again."""


class NotAllowed(Exception):
    """A change that may not be made; says why and what to do."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The quotas that hold, and where they come from.

    `provenance` by user; the default quota's has the key "". `in_file`: what the file alone says.
    """

    quotas: Quotas
    provenance: dict[str, Provenance]
    in_file: Quotas
    changes: tuple[Change, ...]
    version: int


class Administration(Protocol):
    """The one place of a gateway where its quotas are set."""

    @property
    def in_force(self) -> InForce: ...

    def check(self, change: Change) -> None:
        """Raises NotAllowed."""

    async def change(self, changes: Sequence[Change]) -> Kept:
        """In force here when it returns, and kept where that can be had within a few seconds.

        Raises NotAllowed; then none of them is in force.
        """

    async def command(self, command: Command) -> Kept:
        """Done here when it returns, and told to the fleet (TOPIC) or not (MEMORY)."""
