"""The log of the admin address's HTTP server: what was wrong with a request, and nothing of its text.

aiohttp logs each request that it cannot read with a traceback that quotes the line, and that line may be the one with
the token; whoever reaches the address can have as many as he likes.
"""

from __future__ import annotations

import logging
from typing import Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.logs import Event, LogLimit, log_mistake, logger

_SERVER: Final = "aiohttp.server"

log = logger()


class HttpLog(logging.Filter):
    """Filter that lets no record of aiohttp's server pass, and logs what is to be known of it."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit()

    def install(self) -> None:
        """Take all records of aiohttp's server from now on."""
        logging.getLogger(_SERVER).addFilter(self)

    def remove(self) -> None:
        """Leave aiohttp's server its records."""
        logging.getLogger(_SERVER).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.WARNING:
            if error is None or _is_of_the_client(error):
                self._unreadable(_address(record), "no answer" if error is None else type(error).__name__)
            else:
                log_mistake(
                    "admin", error, address=_address(record), reason="a request could not be answered"
                )
        return False

    def _unreadable(self, address: str, cause: str) -> None:
        left_out = self._limit.take(cause, int(monotonic_s() * 1000))
        if left_out is not None:
            log.warning(
                Event.ADMIN_REQUEST_UNREADABLE, address=address, cause=cause, suppressed_count=left_out
            )


def _is_of_the_client(error: BaseException) -> bool:
    """Return whether the request, or its body, was no HTTP."""
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError

    return isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _address(record: logging.LogRecord) -> str:
    """Return who has sent it: the only argument of aiohttp's line, where it has one."""
    return str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
