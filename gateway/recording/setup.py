"""The recorder of one process, out of its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pidgate.events import Heard
from pidgate.gateway.clock import monotonic_ms, wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.recording.config_event import Provenance
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings, Sink

log = logger()


def provenance_of(settings: Settings) -> dict[str, Provenance]:
    """Of the quotas that the configuration sets."""
    users = settings.quotas.users.items()
    return {name: Provenance(owner=user.owner, note=user.note) for name, user in users}


def recorder_of(
    settings: Settings,
    sink: Sink,
    incarnation: str,
    *,
    worker: int = 0,
    applied_offsets: Callable[[], list[int]] = list,
    applied_ranges: Callable[[], list[Heard]] = list,
) -> Recorder | None:
    """None when nobody would read what it tells: no topic, and no state directory."""
    if not settings.events.enabled and settings.state_dir is None:
        return None
    return Recorder(
        sink,
        Identity(settings.gateway_id, incarnation, worker),
        Clocks(monotonic_ms(asyncio.get_running_loop()), wall_ms),
        RecorderSettings(settings.events.redact, sampled=settings.events.refusals == "sampled"),
        settings.to_quotas(),
        cluster=settings.cluster.name,
        applied_offsets=applied_offsets,
        applied_ranges=applied_ranges,
        on_failure=lambda error: log.error(Event.UNEXPECTED_ERROR, reason=f"recording events: {error!r}"),
    )
