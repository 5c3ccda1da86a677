"""Contexts that follow their files: what connects from then on gets what they hold now, what is open stays as it is.

A new context takes the place of the old one. Loading into the living one would, between certificate and key, leave it
with two that do not belong together, and a bad file with neither.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from pidgate.gateway.config.file_watch import LOOK_EVERY_S, FileWatch
from pidgate.gateway.config.source import KeyPath, dotted
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ServerTlsSettings
from pidgate.gateway.disk_thread import aside
from pidgate.gateway.logs import Event, log_mistake, logger
from pidgate.gateway.tls.contexts import FileMissing, TlsUnusable, client_context, server_context

log = logger()

MOST_TRIES: Final = 3
"""A file that is moved away and back again looks as it did: what could not be read is read again in the next looks."""

_FILES: Final = ("cert_file", "key_file", "ca_file", "client_ca_file")


class LiveContext:
    """The context of one section of the configuration. Raises TlsUnusable when it is made."""

    def __init__(self, make: Callable[[], ssl.SSLContext], path: KeyPath, files: Iterable[str]) -> None:
        self.path = path
        self._make = make
        self._watches = [FileWatch(Path(file)) for file in dict.fromkeys(files) if file]
        self._tries = 0
        """Since files were missing, while they changed; 0: they were not, or are for good."""
        self._mark()
        self.context = make()

    @classmethod
    def of_server(cls, tls: ServerTlsSettings, path: KeyPath) -> LiveContext:
        """Return the context for those who connect here. Raises TlsUnusable."""
        return cls(lambda: server_context(tls, path), path, _files(tls))

    @classmethod
    def of_cluster(cls, tls: ClusterTlsSettings) -> LiveContext:
        """Return the context for connections to brokers. Raises TlsUnusable."""
        path = ("cluster", "tls")
        return cls(lambda: client_context(tls, path), path, _files(tls))

    def renew_if_changed(self) -> bool:
        """Read the files again if they have changed and nobody is writing to them; return whether they had.

        Raises TlsUnusable, once for each change; what was in force stays.
        """
        # All of them, whatever the first one shows: each has to be looked at twice.
        if not any([watch.has_changed() for watch in self._watches]) and not self._tries:
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
        """Return a context that may be handed away once: each handshake gets the one that is in force by then."""
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
    """Renew contexts whose files change, for ever."""
    while contexts:
        await asyncio.sleep(LOOK_EVERY_S)
        for one in contexts:
            try:
                if await aside(one.renew_if_changed):
                    log.info(Event.TLS_RENEWED, key=dotted(one.path))
            except TlsUnusable as error:
                log.error(
                    Event.TLS_NOT_RENEWED,
                    key=dotted(error.path),
                    reason=error.text,
                    remedy="correct the file: until then new connections get what was in force before",
                )
            except Exception:  # noqa: BLE001 - logged with its traceback
                # The next second tries again: without this task no certificate is renewed any more.
                log_mistake("tls", reason=f"renewing {dotted(one.path)}")
