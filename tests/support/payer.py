"""Who pays for memory in a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Payer:
    """Somebody of this name."""

    name: str

    def pays_memory_as(self) -> str:
        return self.name
