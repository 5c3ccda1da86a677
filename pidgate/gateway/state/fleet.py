"""The other gateways of the cluster, from their lifecycle and config events: present, gone or different.
PURE.

A gateway is one run: after a restart it counts as another gateway that replaces the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pidgate.events.definitions import ConfigEvent, LifecycleEvent

GONE_AFTER_MS: Final = 90_000
"""Three missing "alive" events."""
_COMPARED: Final = ("window_ms", "remember_ms", "mode")
SPREADS_MS: Final = 5_000
"""A mode set at run time takes a moment to spread; until then no gateway is reported to differ in it."""


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """Settings that must be equal in all gateways for a common quota."""

    window_ms: int
    remember_ms: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """A change of the fleet. `gone`: `reason` is stop or silent. `differs`: `setting` with both values."""

    kind: Literal["seen", "gone", "differs"]
    gateway_id: str
    incarnation: str
    reason: str = ""
    setting: str = ""
    ours: int | str = ""
    theirs: int | str = ""


@dataclass(slots=True)
class Member:
    """Another gateway. `latest_ms`: time of its latest event."""

    gateway_id: str
    run: str
    latest_ms: int


class Fleet:
    """All other gateways. Feed it the events about gateways, and call `sweep` regularly."""

    def __init__(self, own: OwnSettings) -> None:
        self._own = own
        self._members: dict[str, Member] = {}
        self._reported: set[tuple[str, str, int | str]] = set()
        self._mode_spreads_until_ms = 0
        self.differences = 0
        """Settings in which another gateway differs, each told once."""

    def __len__(self) -> int:
        return len(self._members)

    def members(self) -> list[Member]:
        return list(self._members.values())

    def set_own(self, own: OwnSettings, now_ms: int) -> None:
        """Change this gateway's settings.

        Differences are reported at a gateway's next event, in the mode after SPREADS_MS.
        """
        if own.mode != self._own.mode:
            self._mode_spreads_until_ms = now_ms + SPREADS_MS
        if own != self._own:
            self._own = own
            self._reported.clear()

    def take(self, event: LifecycleEvent | ConfigEvent, at_ms: int, now_ms: int) -> list[FleetChange]:
        """Apply a gateway's event of `at_ms`. Only a stop counts if it is older than GONE_AFTER_MS."""
        run = event.incarnation
        if isinstance(event, LifecycleEvent) and event.phase == "stop":
            member = self._members.pop(run, None)
            return [] if member is None else [_gone(member, "stop")]
        if now_ms - at_ms >= GONE_AFTER_MS:
            return []
        return [*self._met(event.gateway_id, run, at_ms), *self._compared(event, run, now_ms)]

    def sweep(self, now_ms: int) -> list[FleetChange]:
        """Drop gateways that were silent for too long."""
        silent = [member for member in self._members.values() if now_ms - member.latest_ms >= GONE_AFTER_MS]
        for member in silent:
            del self._members[member.run]
        return [_gone(member, "silent") for member in silent]

    def _met(self, gateway_id: str, run: str, at_ms: int) -> list[FleetChange]:
        member = self._members.get(run)
        if member is not None:
            member.latest_ms = max(member.latest_ms, at_ms)
            return []
        self._members[run] = Member(gateway_id, run, at_ms)
        return [FleetChange(kind="seen", gateway_id=gateway_id, incarnation=run)]

    def _compared(self, event: LifecycleEvent | ConfigEvent, run: str, now_ms: int) -> list[FleetChange]:
        """Return differences, each once per gateway and value."""
        changes = []
        is_change = isinstance(event, ConfigEvent) and event.quota_version > 1
        mode_spreads = is_change or now_ms < self._mode_spreads_until_ms
        for setting in _COMPARED:
            if setting == "mode" and mode_spreads:
                continue
            ours: int | str = getattr(self._own, setting)
            theirs: int | str = getattr(event, setting)
            key = (event.gateway_id, setting, theirs)
            if ours == theirs or key in self._reported:
                continue
            self._reported.add(key)
            self.differences += 1
            changes.append(
                FleetChange(
                    kind="differs",
                    gateway_id=event.gateway_id,
                    incarnation=run,
                    setting=setting,
                    ours=ours,
                    theirs=theirs,
                )
            )
        return changes


def _gone(member: Member, reason: str) -> FleetChange:
    return FleetChange(kind="gone", gateway_id=member.gateway_id, incarnation=member.run, reason=reason)
