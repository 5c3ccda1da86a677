"""One decoder under fuzzing: what it may raise, cost and find, whoever wrote the bytes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pidgate.protocol.work import MEMORY_FACTOR, MEMORY_SLACK_BYTES

LONGEST_BYTES: Final = 4096
"""Of an input: what grows faster than its bytes shows at this size, and most inputs stay small."""

CPU_S: Final = 0.05
"""For any input of LONGEST_BYTES, under the fuzzer's instrumentation, which makes Python several times slower."""
MEMORY_BYTES: Final = MEMORY_SLACK_BYTES // 4
"""For any input, beside MEMORY_FACTOR for each of its bytes: what protocol/work.py states, for inputs that are as short
as these."""
_TRIES: Final = 3


class Finding(AssertionError):
    """The decoder breaks a rule."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, by what is asked of it."""

    name: str
    decode: Callable[[bytes], object]
    """Decodes all that the gateway would of such bytes. Raises one of `refusals` for what it does not take."""
    agree: Callable[[bytes, object], None]
    """Compare with a decoder that is not of our making. Raises AssertionError."""
    seeds: Callable[[], Iterable[bytes]]
    refusals: tuple[type[Exception], ...]

    def decoded(self, data: bytes) -> object:
        """Return what it decodes, None for a refusal. Raises what the decoder should not."""
        try:
            return self.decode(data)
        except self.refusals:
            return None

    def hold(self, data: bytes, *, measure_memory: bool) -> None:
        """Decode, measure and compare. Raises Finding, and whatever the decoder does beside its refusals."""
        cpu_s, found = self._timed(data)
        for _ in range(_TRIES):
            if cpu_s < CPU_S:
                break
            cpu_s = min(cpu_s, self._timed(data)[0])
        else:
            raise Finding(f"{self.name}: {len(data)} bytes take {cpu_s * 1000:.0f} ms")
        if measure_memory:
            self._check_memory(data)
        if found is not None:
            try:
                self.agree(data, found)
            except AssertionError as error:
                raise Finding(f"{self.name}: read in another way: {error}") from error

    def _timed(self, data: bytes) -> tuple[float, object]:
        began_s = time.thread_time()
        found = self.decoded(data)
        return time.thread_time() - began_s, found

    def _check_memory(self, data: bytes) -> None:
        tracemalloc.start()
        try:
            self.decoded(data)
            _, highest = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        most = MEMORY_BYTES + MEMORY_FACTOR * len(data)
        if highest > most:
            raise Finding(f"{self.name}: {len(data)} bytes take {highest} bytes of memory, more than {most}")
