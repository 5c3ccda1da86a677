"""Start, end and memory of the gateway's process.

Each large frame gets a buffer of its own. By default glibc hands freed memory of that size back to the kernel, and
every page of the next buffer is a page fault: more than half of the CPU time of a bulk transfer.
"""

from __future__ import annotations

import ctypes
from typing import Final, Protocol

# From malloc.h; they are part of glibc's stable interface.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Kept at the top of the heap for the next frames; beyond it memory goes back to the kernel."""

LARGEST_FROM_HEAP_BYTES: Final = 32 * 1024 * 1024
"""glibc's own upper bound on 64 bit; larger buffers are mapped and unmapped one by one."""


class RunsAndDrains(Protocol):
    """`start`, then `until_stopped`; `drain` ends it, and may be called more than once. `reload`: SIGHUP came."""

    async def start(self) -> None: ...
    async def until_stopped(self) -> None: ...
    async def drain(self) -> None: ...
    def reload(self) -> None: ...


def keep_freed_memory() -> bool:
    """Have glibc keep what is freed; return False with another C library, which is left as it is."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, LARGEST_FROM_HEAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    )
