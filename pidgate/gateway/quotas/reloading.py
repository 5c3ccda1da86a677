"""Reload the configuration file on SIGHUP and when it has changed.

A file with a problem is rejected as a whole, and the previous settings stay in force. Quotas of a valid file
apply at once; other differences are logged and need a restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from pidgate.gateway.clock import next_tick, wall_ms
from pidgate.gateway.config import conflicts
from pidgate.gateway.config.file_watch import LOOK_EVERY_S, FileWatch
from pidgate.gateway.config.loading import ConfigError, Overrides, checked, read
from pidgate.gateway.config.reloadable import Difference, differences, taken_over
from pidgate.gateway.config.settings import QuotasSettings, Settings
from pidgate.gateway.config.source import Problem, Source
from pidgate.gateway.disk_thread import DiskThread, Looks
from pidgate.gateway.logs import Event, guarded, logger, set_level
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.entities import resolve
from pidgate.quota.settings import Quotas

log = logger()

SETTLED_S: Final = 0.05
"""Minimum time without a change of the file."""
SETTLING_LOOKS: Final = 40
MOST_NAMED: Final = 20
"""Most changes, or users, logged per reload."""

LONGEST_REASON: Final = 200

_ANYBODY: Final = ""
"""A name without a user: stands for all users without their own settings."""

Cause = Literal["start", "signal", "file"]
Result = Literal["applied", "unchanged", "refused"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """A user whose quota starts to be enforced.

    `would_refuse`: new producer ids admitted since the start that would have been refused.
    """

    user: str
    would_refuse: int


def promotions(before: Quotas, after: Quotas, users: Callable[[], Iterable[UserSnapshot]]) -> list[Promotion]:
    """Return the promotions among all known or configured users, most refused first.

    `users` is called only if a promotion is possible, because thousands of users take a while.
    """
    named = dict.fromkeys([*before.users, *after.users])
    if not any(_is_promoted(before, after, user) for user in (_ANYBODY, *named)):
        return []
    would_refuse = {user.user: user.would_refuse for user in users()}
    found = [
        Promotion(user, would_refuse.get(user, 0))
        for user in dict.fromkeys([*would_refuse, *named])
        if _is_promoted(before, after, user)
    ]
    return sorted(found, key=lambda promotion: (-promotion.would_refuse, promotion.user))


def _is_promoted(before: Quotas, after: Quotas, user: str) -> bool:
    return resolve(after, user).enforces and not resolve(before, user).enforces


class Reloading:
    """Reloads of the file from `start` to `stop`. Without a file it does nothing.

    `settings`: the settings in force, of the file and `overrides`. `apply` puts the quotas of a file in force.
    """

    def __init__(
        self,
        file: Path | None,
        settings: Settings,
        quotas_now: Callable[[], Quotas],
        apply: Callable[[Settings], None],
        users: Callable[[], Iterable[UserSnapshot]],
        overrides: Overrides = MappingProxyType({}),
    ) -> None:
        self.file = file
        self._overrides = overrides
        self.settings = settings
        self.results: Counter[Result] = Counter()
        self.is_last_good = True
        self.last_good_wall_ms = wall_ms()
        self.restart_needed: list[Difference] = []
        self.is_watching = False
        """The file was read once since the start: later changes are noticed."""
        self._quotas_now = quotas_now
        self._apply = apply
        self._users = users
        self._watch = FileWatch(file) if file is not None else None
        self._disk = DiskThread("pidgate-reload")
        self._looks = self._new_looks()
        """For a change of the file. A signal ends them."""
        self._background: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read the file again, as it may have changed since the settings were loaded, and watch it."""
        if self._watch is not None:
            self._background = asyncio.get_running_loop().create_task(
                guarded("configuration", self._follow(self._watch))
            )

    async def stop(self) -> None:
        """Cancel the watcher task and wait for it."""
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
            self._disk.shutdown()
            self._looks.end()

    def reload(self) -> None:
        """Read the file now, whether or not it has changed. Problems are logged."""
        if self._watch is None:
            log_nothing_to_reload()
        self._looks.end()

    def _new_looks(self) -> Looks:
        return Looks(lambda: self._watch is not None and self._watch.has_changed(), LOOK_EVERY_S)

    async def _follow(self, watch: FileWatch) -> None:
        cause: Cause | None = "start"
        while True:
            try:
                if cause is not None:
                    await self._reload(watch, cause)
                self.is_watching = True
                cause = "file" if await self._disk.do(self._looks) else "signal"
                self._looks = self._new_looks()
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"reloading the configuration: {error}")
                text = f"cannot be used: {type(error).__name__}: {str(error)[:LONGEST_REASON]}"
                self._refuse((Problem(str(self.file), "", text),), cause or "file")
                cause = None
                await next_tick(LOOK_EVERY_S)

    async def _reload(self, watch: FileWatch, cause: Cause) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            # Off the event loop: thousands of users take a second.
            source, in_file = await self._read(watch)
        except ConfigError as error:
            self._refuse(error.problems, cause)
            return
        after = taken_over(self.settings, in_file)
        changed = await asyncio.to_thread(differences, self.settings, after)
        waiting = await asyncio.to_thread(differences, after, in_file)
        if cause == "start" and after == self.settings and not waiting:
            return
        lost = _lost_quotas(self.settings, in_file, changed)
        self._take(after, changed, waiting, cause, began_s)
        for difference in lost[:MOST_NAMED]:
            text = f"is no longer in the file: {difference.before} -> {difference.after}"
            log.warning(Event.CONFIG_WARNING, where=str(self.file), key=difference.key, text=text)
        for path, text in conflicts.warnings(in_file):
            log.warning(Event.CONFIG_WARNING, where=source.where(path), key=source.key(path), text=text)

    async def _read(self, watch: FileWatch) -> tuple[Source, Settings]:
        """Read the file once its writer is done. Raises ConfigError."""
        assert self.file is not None
        problem: ConfigError | None = None
        for _ in range(SETTLING_LOOKS):
            await self._disk.do(watch.mark)
            try:
                problem, read = None, await self._disk.do(_read, self.file, self._overrides)
            except ConfigError as error:
                problem = error
            await asyncio.sleep(SETTLED_S)
            if await self._disk.do(watch.is_still):
                break
        else:
            raise ConfigError.at(str(self.file), "changes all the time; write it in one go")
        if problem is not None:
            raise problem
        return read

    def _refuse(self, problems: tuple[Problem, ...], cause: Cause) -> None:
        self.results["refused"] += 1
        self.is_last_good = False
        for problem in problems:
            log.error(Event.CONFIG_PROBLEM, where=problem.where, key=problem.key, text=problem.text)
        log.error(
            Event.CONFIG_REFUSED,
            config=str(self.file),
            cause=cause,
            problems=len(problems),
            remedy="correct the file: until then everything stays as it was before",
        )

    def _take(
        self,
        after: Settings,
        changed: list[Difference],
        waiting: list[Difference],
        cause: Cause,
        began_s: float,
    ) -> None:
        before, is_new = self._quotas_now(), after != self.settings
        if is_new:
            self._apply(after)
            self.settings = after
            set_level(after.log_level)
        was_waiting, self.restart_needed = self.restart_needed, waiting
        self.is_last_good = True
        self.last_good_wall_ms = wall_ms()
        self.results["applied" if is_new else "unchanged"] += 1
        self._log_taken(changed, cause, asyncio.get_running_loop().time() - began_s)
        if waiting != was_waiting or cause == "signal":
            self._log_waiting()
        if is_new:
            self._log_promotions(before)

    def _log_taken(self, changed: list[Difference], cause: Cause, seconds: float) -> None:
        named = [str(difference) for difference in changed[:MOST_NAMED]]
        more = [f"and {len(changed) - MOST_NAMED} more"] * (len(changed) > MOST_NAMED)
        log.info(
            Event.CONFIG_RELOADED,
            config=str(self.file),
            cause=cause,
            changed=named + more,
            changes=len(changed),
            restart_needed=len(self.restart_needed),
            seconds=round(seconds, 3),
        )

    def _log_waiting(self) -> None:
        for difference in self.restart_needed:
            log.warning(
                Event.CONFIG_RESTART_NEEDED,
                key=difference.key,
                running=difference.before,
                in_file=difference.after,
                remedy="restart the gateway for it; the quotas of the same file are in force",
            )

    def _log_promotions(self, before: Quotas) -> None:
        found = promotions(before, self._quotas_now(), self._users)
        for promotion in found[:MOST_NAMED]:
            log.warning(
                Event.ENFORCING_BEGINS,
                user=promotion.user,
                users=len(found),
                would_refuse=promotion.would_refuse,
                remedy="so many ids would have been refused since the gateway started; if they should not "
                "have been, raise the rate, or write mode: observe for this user",
            )


def _lost_quotas(before: Settings, in_file: Settings, changed: list[Difference]) -> list[Difference]:
    """Return what held users before and is lost: all quotas of the file, or `mode: enforce`."""
    if in_file.quotas == QuotasSettings() != before.quotas:
        was, is_now = (
            f"mode {quotas.mode}, {len(quotas.named())} users with settings"
            for quotas in (before.quotas, in_file.quotas)
        )
        return [Difference("quotas", was, is_now)]
    return [one for one in changed if one.key.endswith("mode") and one.before == "enforce"]


def log_nothing_to_reload() -> None:
    log.warning(
        Event.NOTHING_TO_RELOAD,
        reason="the gateway runs on command-line options, without a file",
        remedy="run it with --config FILE, and it reads that file again on SIGHUP and on change",
    )


def _read(file: Path, overrides: Overrides) -> tuple[Source, Settings]:
    source = read(file, overrides)
    return source, checked(source)
