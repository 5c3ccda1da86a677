"""Watch of the open files: a process that has no free descriptor accepts nobody, and nothing else shows it.

libuv closes a connection that it has no descriptor for, without an error to anybody: to clients the gateway then looks
like one that hangs up on them, and neither its log nor its metrics would have a word about it.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from pidgate.gateway.logs import Event, LogLimit, logger
from pidgate.gateway.metrics.counters import Counters

log = logger()

QUIET_MS: Final = 10_000
"""One line in so many: an operator has to act, and lines do not free anything."""
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE))
_REMEDY: Final = (
    "raise the limit of open files (ulimit -n, LimitNOFILE=) or lower limits.connections: a client takes two"
)


def is_exhausted() -> bool:
    """Return whether this process, or the machine, has no free descriptor at this moment.

    To ask for one costs microseconds; to count those in use costs as much for each of them.
    """
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in _EXHAUSTED
    os.close(descriptor)
    return False


class OpenFilesWatch:
    """Counts and logs the seconds in which no descriptor was free; `look` is called once a second."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._lines = LogLimit(QUIET_MS)

    def look(self, now_ms: int) -> None:
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
