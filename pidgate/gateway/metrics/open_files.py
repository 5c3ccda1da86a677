"""Watch of open files: a process without a free descriptor accepts no connection, and nothing else shows it.

libuv closes a connection for which it has no descriptor without reporting an error. To clients the gateway
then seems to hang up, while its log and metrics stay silent.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from pidgate.gateway.logs import Event, LogLimit, logger
from pidgate.gateway.metrics.counters import Counters

log = logger()

QUIET_MS: Final = 10_000
"""Interval of log lines: an operator has to act, and more lines free no descriptor."""
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE))
_REMEDY: Final = (
    "raise the limit of open files (ulimit -n, LimitNOFILE=) or lower limits.connections: a client takes two"
)


def is_exhausted() -> bool:
    """Return whether this process, or the machine, has no free descriptor at this moment.

    Opening one costs microseconds; counting the open ones costs as much for each of them.
    """
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in _EXHAUSTED
    os.close(descriptor)
    return False


class OpenFilesWatch:
    """Counts and logs the seconds without a free descriptor. `look` is called once a second."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._lines = LogLimit(QUIET_MS)

    def check_limit(self, now_ms: int) -> None:
        if not is_exhausted():
            return
        counters = self._counters
        counters.open_files_exhausted += 1
        left_out = self._lines.take(None, now_ms)
        if left_out is not None:
            log.error(
                Event.OPEN_FILES_EXHAUSTED,
                connections=counters.connections_open,
                remedy=_REMEDY,
                suppressed_count=left_out,
            )
