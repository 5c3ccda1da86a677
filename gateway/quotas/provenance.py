"""Where the quotas in force come from, user by user: the file, or who changed them at run time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.changes import Change
from pidgate.quota.in_force import ALL_MODES

RUN_TIME: Final = "run_time"


def provenance_in_force(settings: Settings, changes: Iterable[Change]) -> dict[str, Provenance]:
    """`changes`: those that decide something. By user; the default quota's has the key "".

    Owner and note are the file's always. The mode of all users is nobody's own, and not told here.
    """
    users = settings.quotas.users.items()
    found = {name: Provenance(owner=user.owner, note=user.note) for name, user in users}
    for change in sorted(changes, key=lambda change: change.set_wall_ms):
        if (change.target.setting, change.target.user) == ALL_MODES:
            continue
        user = change.target.user or ""
        found[user] = replace(
            found.get(user, Provenance()),
            source=RUN_TIME,
            set_by=change.set_by,
            set_wall_ms=change.set_wall_ms,
            until_wall_ms=change.until_wall_ms,
        )
    return found
