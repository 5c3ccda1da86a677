"""SSL contexts that follow their files: new connections use the new files, open ones are unaffected.

Each change creates a new context. Loading files into the existing one could leave it with a mismatched
certificate and key, or with neither.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from pidgate.gateway.config.file_watch import LOOK_EVERY_S, FileWatch
from pidgate.gateway.config.source import KeyPath, dotted
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ServerTlsSettings
from pidgate.gateway.disk_thread import DiskThread, Looks
from pidgate.gateway.logs import Event, log_mistake, logger
from pidgate.gateway.tls.contexts import FileMissing, TlsUnusable, client_context, server_context

log = logger()

MOST_TRIES: Final = 3
"""Retries after a failed read.

A file that is moved away and back looks unchanged, so failed reads are repeated at the next checks.
"""

_FILES: Final = ("cert_file", "key_file", "ca_file", "client_ca_file")


class LiveContext:
    """The context of one TLS section. The constructor raises TlsUnusable."""

    def __init__(self, make: Callable[[], ssl.SSLContext], path: KeyPath, files: Iterable[str]) -> None:
        self.path = path
        self._make = make
        self._watches = [FileWatch(Path(file)) for file in dict.fromkeys(files) if file]
        self._tries = 0
        """Reads since files went missing during a change; 0 if none are missing or the retries are used up.
        """
        self._mark()
        self.context = make()

    @classmethod
    def of_server(cls, tls: ServerTlsSettings, path: KeyPath) -> LiveContext:
        """Return the context for client connections. Raises TlsUnusable."""
        return cls(lambda: server_context(tls, path), path, _files(tls))

    @classmethod
    def of_cluster(cls, tls: ClusterTlsSettings) -> LiveContext:
        """Return the context for broker connections. Raises TlsUnusable."""
        path = ("cluster", "tls")
        return cls(lambda: client_context(tls, path), path, _files(tls))

    def awaits_renewal(self) -> bool:
        """Return whether files have changed and their writer has finished, or whether some were missing then."""
        # No short circuit: each watch needs two checks.
        return any([watch.has_changed() for watch in self._watches]) or self._tries > 0

    def renew_if_changed(self) -> bool:
        """Reload changed files; return whether they had changed.

        Raises TlsUnusable, once per change; the previous context stays in force.
        """
        if not self.awaits_renewal():
            return False
        self._mark()
        try:
            self.context = self._make()
        except FileMissing:
            self._tries = (self._tries + 1) % MOST_TRIES
            if self._tries:
                return False
            raise
        except TlsUnusable:
            self._tries = 0
            raise
        self._tries = 0
        return True

    def for_a_server_of_others(self) -> ssl.SSLContext:
        """Return a context to hand to a server once; each handshake uses the files in force at that time."""
        handed = self._make()

        def take_newest(tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            tls.context = self.context

        handed.sni_callback = take_newest
        return handed

    def _mark(self) -> None:
        for watch in self._watches:
            watch.mark()


def _files(tls: ServerTlsSettings | ClusterTlsSettings) -> list[str]:
    return [getattr(tls, name, "") for name in _FILES]


async def follow(contexts: Sequence[LiveContext]) -> None:
    """Reload contexts when their files change, until cancelled."""
    disk = DiskThread("pidgate-tls")
    looks = Looks(lambda: any([one.awaits_renewal() for one in contexts]), LOOK_EVERY_S)
    try:
        while contexts:
            await disk.do(looks)
            for one in contexts:
                await _renew(disk, one)
    finally:
        looks.end()
        disk.shutdown()


async def _renew(disk: DiskThread, one: LiveContext) -> None:
    try:
        if await disk.do(one.renew_if_changed):
            log.info(Event.TLS_RENEWED, key=dotted(one.path))
    except TlsUnusable as error:
        log.error(
            Event.TLS_NOT_RENEWED,
            key=dotted(error.path),
            reason=error.text,
            remedy="correct the file; until then new connections use the previous one",
        )
    except Exception:  # noqa: BLE001 - logged with its traceback
        # Keep the task alive: without it no certificate would be renewed. The next second tries again.
        log_mistake("tls", reason=f"renewing {dotted(one.path)}")
