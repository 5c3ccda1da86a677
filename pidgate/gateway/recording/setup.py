"""Construction of the gateway's recorder from its settings."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pidgate.events.definitions import Heard
from pidgate.gateway.clock import monotonic_ms, wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings

log = logger()


class EventSink(Protocol):
    """Destination of events: the gateway's event log."""

    def publish(self, key: str, value: bytes) -> None:
        """Accept an event. Neither waits nor raises."""

    @property
    def applied_offsets(self) -> list[int]:
        """Next offset to apply, by partition of the events topic."""

    def applied_ranges(self) -> list[Heard]:
        """Return the ranges applied since the last call, with their times."""


def recorder_of(settings: Settings, events: EventSink, incarnation: str) -> Recorder | None:
    """Return the recorder. None with neither a topic nor a state directory: no one reads events."""
    if not settings.events.enabled and settings.state_dir is None:
        return None
    return Recorder(
        events.publish,
        Identity(settings.gateway_id, incarnation),
        Clocks(monotonic_ms(asyncio.get_running_loop()), wall_ms),
        RecorderSettings(settings.events.redact),
        settings.to_quotas(),
        cluster=settings.cluster.name,
        applied_offsets=lambda: events.applied_offsets,
        applied_ranges=events.applied_ranges,
        on_failure=lambda error: log.error(Event.UNEXPECTED_ERROR, reason=f"recording events: {error!r}"),
    )
