"""The other gateways of the cluster, by what they tell of themselves: who is there, who is gone, who differs.

A gateway is one run of it: a restarted one is another that takes the place of the first. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pidgate.events import ConfigEvent, LifecycleEvent

GONE_AFTER_MS: Final = 90_000
"""Three words of being alive have not come."""
_COMPARED: Final = ("window_ms", "remember_ms", "mode")
SPREADS_MS: Final = 5_000
"""A mode that is set at run time takes a moment to be everywhere; until then nobody is said to differ in it."""


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """What must be alike in all gateways for one quota to hold."""

    window_ms: int
    remember_ms: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """What became known. `gone`: `reason` says stop or silent. `differs`: `setting` with both values."""

    kind: Literal["seen", "gone", "differs"]
    gateway_id: str
    incarnation: str
    reason: str = ""
    setting: str = ""
    ours: int | str = ""
    theirs: int | str = ""


@dataclass(slots=True)
class Member:
    """Another gateway that is there. `heard_ms`: its latest word."""

    gateway_id: str
    run: str
    heard_ms: int


class Fleet:
    """All others. Feed it what the absorber hears, and `sweep` it now and then."""

    def __init__(self, own: OwnSettings) -> None:
        self._own = own
        self._members: dict[str, Member] = {}
        self._named: set[tuple[str, str, int | str]] = set()
        self._mode_spreads_until_ms = 0

    def __len__(self) -> int:
        return len(self._members)

    def members(self) -> list[Member]:
        return list(self._members.values())

    def set_own(self, own: OwnSettings, now_ms: int) -> None:
        """Ours have changed; who differs now is named at its next word, in the mode only after SPREADS_MS."""
        if own.mode != self._own.mode:
            self._mode_spreads_until_ms = now_ms + SPREADS_MS
        if own != self._own:
            self._own = own
            self._named.clear()

    def heard(self, event: LifecycleEvent | ConfigEvent, at_ms: int, now_ms: int) -> list[FleetChange]:
        """A gateway told of itself at `at_ms`. What is older than a gateway's silence may last tells nothing."""
        run = event.incarnation.split(".", 1)[0]
        if isinstance(event, LifecycleEvent) and event.phase == "stop" and "." not in event.incarnation:
            member = self._members.pop(run, None)
            return [] if member is None else [_gone(member, "stop")]
        if now_ms - at_ms >= GONE_AFTER_MS:
            return []
        return [*self._met(event.gateway_id, run, at_ms), *self._compared(event, run, now_ms)]

    def sweep(self, now_ms: int) -> list[FleetChange]:
        """Who has been silent for too long is gone."""
        silent = [member for member in self._members.values() if now_ms - member.heard_ms >= GONE_AFTER_MS]
        for member in silent:
            del self._members[member.run]
        return [_gone(member, "silent") for member in silent]

    def _met(self, gateway_id: str, run: str, at_ms: int) -> list[FleetChange]:
        member = self._members.get(run)
        if member is not None:
            member.heard_ms = max(member.heard_ms, at_ms)
            return []
        self._members[run] = Member(gateway_id, run, at_ms)
        return [FleetChange(kind="seen", gateway_id=gateway_id, incarnation=run)]

    def _compared(self, event: LifecycleEvent | ConfigEvent, run: str, now_ms: int) -> list[FleetChange]:
        """Each difference is named once for each gateway and value."""
        changes = []
        tells_of_change = isinstance(event, ConfigEvent) and event.quota_version > 1
        mode_spreads = tells_of_change or now_ms < self._mode_spreads_until_ms
        for setting in _COMPARED:
            if setting == "mode" and mode_spreads:
                continue
            ours: int | str = getattr(self._own, setting)
            theirs: int | str = getattr(event, setting)
            named = (event.gateway_id, setting, theirs)
            if ours == theirs or named in self._named:
                continue
            self._named.add(named)
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
