"""aiokafka is loaded here, and what it says in its own log kept out of ours, its last words remembered.

It repeats itself at every retry, several times a second while a broker is away, where the gateway says once
what is wrong and what helps. But the reason why nothing connects is told nowhere else: the exception says only
that no bootstrap server would do.
"""

import asyncio
import logging
import time
from importlib import import_module
from typing import Final

_LIBRARY: Final = "aiokafka"
RECENT_S: Final = 60.0
UNEXPECTED_EVERY_S: Final = 60.0


class _LastWords(logging.Handler):
    """Remembers the last complaint. What carries a traceback is a fault in the library: passed on, now and then."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._said_at_s = 0.0
        self._passed_on_at_s: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        self.text, self._said_at_s = record.getMessage(), now_s
        passed_on_s = self._passed_on_at_s
        if record.exc_info and (passed_on_s is None or now_s - passed_on_s > UNEXPECTED_EVERY_S):
            self._passed_on_at_s = now_s
            logging.getLogger().handle(record)

    def recent(self) -> str:
        return self.text if time.monotonic() - self._said_at_s < RECENT_S else ""


_last_words = _LastWords()


def quieten() -> None:
    """From now on aiokafka's log goes nowhere but here. May be called again."""
    library = logging.getLogger(_LIBRARY)
    library.propagate = False
    library.setLevel(logging.WARNING)
    library.handlers[:] = [_last_words]


async def load() -> None:
    """Import aiokafka, without a word in the log, while the event loop goes on: it takes a quarter of a second."""
    quieten()
    for module in ("aiokafka", "aiokafka.admin", "aiokafka.partitioner"):
        await asyncio.to_thread(import_module, module)


def last_words() -> str:
    """What aiokafka complained of last, if that was in the last minute; otherwise empty."""
    return _last_words.recent()
