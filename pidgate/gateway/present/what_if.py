"""What another rate would have refused of a user: asked for on the page, computed in a process of its own.

One at a time, for LONGEST_S at most. The process runs at the lowest priority and is killed at the end of its time.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from typing import Any, Final

from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.present.present import Present
from pidgate.gateway.present.question import Question
from pidgate.quota.entities import User

LONGEST_S: Final = 10.0
DAY_MS: Final = 86_400_000
PROGRAM: Final = "pidgate.cli.what_if"


class CannotTell(Exception):
    """There is no answer. The text gives the reason."""


class WhatIf:
    """`ask` for a request."""

    def __init__(self, present: Present, settings: Settings) -> None:
        self._present = present
        self._settings = settings
        self._is_busy = False

    async def ask(self, user: User, rates: tuple[float, ...]) -> dict[str, Any]:
        """Return what these rates would have refused. Raises CannotTell."""
        if self._is_busy:
            raise CannotTell("another replay is under way at this gateway; try again in some seconds")
        self._is_busy = True
        try:
            return await asyncio.to_thread(_run, self._question(user, rates))
        finally:
            self._is_busy = False

    def _question(self, user: User, rates: tuple[float, ...]) -> Question:
        present, now_ms = self._present, wall_ms()
        from_ms, recent = now_ms - DAY_MS, present.recent
        has_topic = self._settings.events.enabled
        return Question(
            settings=self._settings,
            producer_ids=present.quotas.in_force.quotas.producer_ids,
            user=user,
            rates=rates,
            wall_ms=now_ms,
            from_wall_ms=from_ms,
            brokers=present.brokers,
            events=None if has_topic else list(recent.since(from_ms)),
            whole_from_wall_ms=max(from_ms, recent.whole_from_wall_ms),
        )


def _run(question: Question) -> dict[str, Any]:
    """Run the process; in a thread, which waits for it."""
    command = [sys.executable, "-P", "-m", PROGRAM]
    try:
        done = subprocess.run(
            command, input=pickle.dumps(question), capture_output=True, timeout=LONGEST_S, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise CannotTell(
            f"the replay was stopped after {LONGEST_S:.0f} s: there is too much record, or this machine is busy"
        ) from None
    except (OSError, ValueError) as error:
        raise CannotTell(f"the replay failed: {error}") from error
    if "error" in found:
        raise CannotTell(str(found["error"]))
    return found
