"""Log of the admin HTTP server: the error of a request, never its text.

aiohttp logs an unparsable request with a traceback that quotes the line, which may contain the token. Anyone
with network access could flood the log.
"""

from __future__ import annotations

import logging
from typing import Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.logs import Event, LogLimit, log_mistake, logger

_SERVER: Final = "aiohttp.server"

log = logger()


class HttpLog(logging.Filter):
    """Filter that drops all records of aiohttp's server and logs a summary of each."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit()

    def install(self) -> None:
        """Filter aiohttp's server log from now on."""
        logging.getLogger(_SERVER).addFilter(self)

    def remove(self) -> None:
        """Remove the filter."""
        logging.getLogger(_SERVER).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.WARNING:
            if error is None or _is_of_the_client(error):
                self._unreadable(_address(record), "no answer" if error is None else type(error).__name__)
            else:
                log_mistake("admin", error, address=_address(record), reason="a request failed")
        return False

    def _unreadable(self, address: str, cause: str) -> None:
        left_out = self._limit.take(cause, int(monotonic_s() * 1000))
        if left_out is not None:
            log.warning(
                Event.ADMIN_REQUEST_UNREADABLE, address=address, cause=cause, suppressed_count=left_out
            )


def _is_of_the_client(error: BaseException) -> bool:
    """Return whether the request or its body was invalid HTTP."""
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError

    return isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _address(record: logging.LogRecord) -> str:
    """Return the sender's address, the only argument of aiohttp's message if present."""
    return str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
