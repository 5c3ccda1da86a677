"""The recorder of the gateway, made from its settings."""

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
        """Take an event. Neither waits nor raises."""

    @property
    def applied_offsets(self) -> list[int]:
        """By partition of the events topic: the next offset to apply."""

    def applied_ranges(self) -> list[Heard]:
        """Return what was applied when, since the last call."""


def recorder_of(settings: Settings, events: EventSink, incarnation: str) -> Recorder | None:
    """Return the recorder; None when nobody would read its events: no topic, and no state directory."""
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
