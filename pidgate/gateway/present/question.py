"""The question of the status page to the process that replays a user's day (what_if.py)."""

from __future__ import annotations

from dataclasses import dataclass

from pidgate.gateway.config.settings import Settings
from pidgate.quota.entities import User
from pidgate.quota.settings import ProducerIdSettings


@dataclass(frozen=True, slots=True)
class Question:
    """What the process is asked.

    `events`: (time, event) of this gateway's memory, whole since `whole_from_wall_ms`. None: the events topic is read.
    """

    settings: Settings
    producer_ids: ProducerIdSettings
    user: User
    rates: tuple[float, ...]
    wall_ms: int
    from_wall_ms: int
    brokers: int
    events: list[tuple[int, bytes]] | None
    whole_from_wall_ms: int
