"""What a model client is set to, in the words of the real ones, with the real defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pidgate.load.plan import Address, Login


@dataclass(frozen=True, slots=True)
class Times:
    """Time-outs and back-offs. A family has its own defaults; `scaled` makes all of them longer or shorter."""

    request_s: float
    delivery_s: float
    retry_backoff_s: float
    retry_backoff_max_s: float
    reconnect_backoff_s: float
    reconnect_backoff_max_s: float
    metadata_backoff_s: float
    connect_s: float
    max_block_s: float
    """How long an application waits for its producer id, or for the end of a transaction."""
    transaction_s: float = 60.0
    linger_s: float = 0.0

    def scaled(self, factor: float) -> Times:
        """All of them times `factor`."""
        return replace(self, **{time.name: getattr(self, time.name) * factor for time in fields(self)})


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one client. `times` None: its family's."""

    bootstrap: tuple[Address, ...]
    topic: str = "model"
    login: Login | None = None
    transactional_id: str | None = None
    times: Times | None = None
    newest: dict[int, int] | None = None
    """By API: the newest version that it speaks, where that is older than its family's."""
    padding_bytes: int = 0
    """Of each record, behind what it says."""
