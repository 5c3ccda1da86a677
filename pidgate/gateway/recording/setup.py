"""Construction of the gateway's recorder from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pidgate.gateway.clock import monotonic_ms, wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings

log = logger()


def recorder_of(
    settings: Settings,
    publish: Callable[[str, bytes], None],
    applied_offsets: Callable[[], list[int]],
    incarnation: str,
) -> Recorder:
    """Return the recorder.

    `publish` takes an event's key and value, and neither waits nor raises. `applied_offsets` returns the next offset
    of the events topic to apply, by partition.
    """
    return Recorder(
        publish,
        Identity(settings.gateway_id, incarnation),
        Clocks(monotonic_ms(asyncio.get_running_loop()), wall_ms),
        RecorderSettings(settings.events.redact),
        settings.to_quotas(),
        cluster=settings.cluster.name,
        applied_offsets=applied_offsets,
        on_failure=lambda error: log.error(Event.UNEXPECTED_ERROR, reason=f"recording events: {error!r}"),
    )
