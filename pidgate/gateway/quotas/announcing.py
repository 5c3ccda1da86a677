"""Log lines about quotas set at run time: changed, expired, not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.quotas.administration import InForce, Kept
from pidgate.gateway.quotas.inherited import login_warnings
from pidgate.quota.changes import Change, Setting, Target, has_ended, value_in_force
from pidgate.quota.settings import Mode, Quotas
from pidgate.units import show_milli

log = logger()

_REMEDIES: Final = {
    Kept.TOPIC: "",
    Kept.STATE_DIR: "nothing, if the topic can be written soon: it is tried again; a restart loses nothing",
    Kept.MEMORY: "do not restart this gateway before the topic or the state_dir can be written: it is tried again",
}


def log_changes(
    before: InForce, after: InForce, latest: Callable[[Target], Change | None], wall_ms: int
) -> None:
    """Log each added or removed change. `latest` returns the newest change of a target, resets included."""
    old = {change.target: change for change in before.changes}
    new = {change.target: change for change in after.changes}
    for target in old.keys() | new.keys():
        change = new.get(target)
        if change == old.get(target):
            continue
        values = {
            "value": _shown(value_in_force(after.quotas, target.setting, target.user)),
            "before": _shown(value_in_force(before.quotas, target.setting, target.user)),
        }
        gone = old.get(target)
        if change is None and gone is not None and has_ended(gone, wall_ms) and latest(target) == gone:
            log.info(
                Event.QUOTA_CHANGE_ENDED,
                set_by=gone.set_by,
                set_through=gone.set_through,
                **values,
                **_named(target),
            )
            continue
        change = change or latest(target)
        log.info(
            Event.QUOTAS_CHANGED,
            action=change.action.value if change is not None else "reset",
            set_by=change.set_by if change is not None else "",
            set_through=change.set_through if change is not None else "",
            set_wall_ms=change.set_wall_ms if change is not None else None,
            until_wall_ms=change.until_wall_ms if change is not None else None,
            note=change.note if change is not None else "",
            **values,
            **_named(target),
        )


def log_login_warnings(settings: Settings, quotas: Quotas, mechanisms: Sequence[str]) -> None:
    """Warn of what the file misses for brokers that want a login by these mechanisms, or none."""
    for missing in login_warnings(settings, quotas, mechanisms):
        log.warning(Event.CONFIG_WARNING, key=missing.key, text=missing.text)


def log_not_kept(change: Change, kept: Kept, cause: str) -> None:
    """Log that a change in force is not kept where it should be."""
    log.warning(
        Event.QUOTA_CHANGE_NOT_KEPT,
        kept=kept.value,
        cause=cause,
        remedy=_REMEDIES[kept],
        **_named(change.target),
    )


def _named(target: Target) -> dict[str, Any]:
    user = target.user
    if user is None:
        user = "(all users)" if target.setting is Setting.MODE else "(default user)"
    return {"setting": target.setting.value, "user": user, "temporary": target.temporary}


def _shown(value: int | Mode | None) -> str:
    """Return a mode, or a rate in ids per window, as text."""
    if value is None:
        return "not set"
    return value.value if isinstance(value, Mode) else show_milli(value)
