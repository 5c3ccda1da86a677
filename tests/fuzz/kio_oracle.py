"""kio as an oracle of brokers' answers. An input is api key, version (two bytes each) and a frame without its size.

An answer counts as read by kio when it gives the same bytes written again: then every field is what it seems.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings

from pidgate.protocol.versions import SPOKEN, speaks
from tests.fuzz.requests import NotTaken
from tests.support.frames import entities, entity_class, read_response, response_frame

SELECTOR: Final = struct.Struct(">hh")


def parts(data: bytes, *api_keys: int) -> tuple[int, int, bytes]:
    """Return api key, version and frame of an input. Raises NotTaken where it is not of these APIs."""
    if len(data) < SELECTOR.size:
        raise NotTaken
    api_key, version = SELECTOR.unpack_from(data)
    if not speaks(api_key, version) or (api_keys and api_key not in api_keys):
        raise NotTaken
    return api_key, version, data[SELECTOR.size :]


kio_may_abort = False
"""Set where inputs are not known: kio allocates what an array announces, and an allocation that fails ends the process.
Then a child process reads each input first."""

_KIOS_MEMORY_BYTES: Final = 1 << 30


def kios(api_key: int, version: int, frame: bytes) -> Any | None:
    """Return what kio reads, if it is sure."""
    if kio_may_abort and not _survives(api_key, version, frame):
        return None
    try:
        entity = read_response(entity_class(api_key, version), frame)
        again = response_frame(entity, int.from_bytes(frame[:4], "big", signed=True))
    except Exception:  # noqa: BLE001 - it has many, and no class of them
        return None
    return entity if again == frame else None


def _survives(api_key: int, version: int, frame: bytes) -> bool:
    """Whether a process that lets kio read this ends by itself."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGABRT, signal.SIG_DFL)  # else the fuzzer's handler takes it for a finding
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Rust's last words
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _KIOS_MEMORY_BYTES,) * 2)
        with contextlib.suppress(Exception):
            read_response(entity_class(api_key, version), frame)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0


@cache
def drawn_answers(api_key: int, version: int, count: int = 3) -> tuple[bytes, ...]:
    """Return some valid answers, always the same."""
    found: list[bytes] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(entities(entity_class(api_key, version), 2))
    def draw(entity: Any) -> None:
        found.append(SELECTOR.pack(api_key, version) + response_frame(entity))

    draw()
    return tuple(found)


def seeds(*api_keys: int) -> Callable[[], Iterator[bytes]]:
    """Return the seeds of a target: some valid answers in every version of these APIs."""

    def drawn() -> Iterator[bytes]:
        for api_key in api_keys:
            api = SPOKEN[api_key]
            for version in range(api.min_version, api.max_version + 1):
                try:
                    yield from drawn_answers(api_key, version)
                except KeyError:  # older than kio's classes
                    continue

    return drawn
