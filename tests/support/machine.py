"""Bounds of processor time that are stated for one machine, as they are on this one.

The machine of a bound adds ten million numbers in a third of a second. One that is slower, or has become slower since
yesterday, as virtual ones do, gets more time; a faster one does not get less.
"""

import time
from typing import Final

_ADDED: Final = 10_000_000
_STATED_S: Final = 0.33


def here_s(bound_s: float) -> float:
    """Return the bound on this machine now, at least as it is stated; it takes about two seconds to say so."""
    return bound_s * max(1.0, min(_additions_s(), _additions_s()) / _STATED_S)


def _additions_s() -> float:
    began_s, total = time.process_time(), 0
    for number in range(_ADDED):
        total += number
    return time.process_time() - began_s
