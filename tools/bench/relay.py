"""A relay before a broker that notes how long the broker takes: `python -m tools.bench.relay LISTEN UPSTREAM FILE`.

Of each Produce of the loads (by their client id) it keeps when the answer came and how long after the request, both in
ns of the monotonic clock; at SIGTERM it writes them to FILE, a JSON list of pairs. What a client waits for beside
that, whatever stands between the two has added, or the relay: it runs before others where it may.
"""

import asyncio
import json
import os
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

import uvloop

from pidgate.protocol.produce import PRODUCE
from tools.bench.bare_proxy import BytesPipe, serve
from tools.bench.loads.client import CLIENT_ID

_NICE: Final = -10
_CLIENT_ID_AT: Final = 12
_CLIENT_ID: Final = struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID.encode()
_HEAD_BYTES: Final = _CLIENT_ID_AT + len(_CLIENT_ID)


class Heads:
    """The beginnings of the frames of a stream, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._rest_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the first _HEAD_BYTES of each frame, size prefix included; of a shorter one all."""
        at, head = 0, self._head
        while at < len(data):
            if self._rest_bytes:
                passed = min(self._rest_bytes, len(data) - at)
                self._rest_bytes -= passed
                at += passed
                continue
            more = data[at : at + self._wanted_bytes() - len(head)]
            head += more
            at += len(more)
            if len(head) >= 4 and len(head) == self._wanted_bytes():
                yield bytes(head)
                self._rest_bytes = self._frame_bytes() - len(head)
                head.clear()

    def _wanted_bytes(self) -> int:
        return 4 if len(self._head) < 4 else min(self._frame_bytes(), _HEAD_BYTES)

    def _frame_bytes(self) -> int:
        return 4 + int(struct.unpack_from(">i", self._head)[0])


class Stamped(BytesPipe):
    """One side of a connection; both know what was asked and not answered."""

    answered: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, upstream: tuple[str, int] | None = None, peer: "Stamped | None" = None) -> None:
        super().__init__(upstream, peer)
        self._heads = Heads()
        self._asked: deque[tuple[int, bool]] = deque() if peer is None else peer._asked

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        for head in self._heads.feed(data):
            if self.upstream:
                self._asked.append((now_ns, _is_produce_of_a_load(head)))
            else:
                asked_ns, counts = self._asked.popleft()
                if counts:
                    Stamped.answered.append((now_ns, now_ns - asked_ns))
        super().data_received(data)


def _is_produce_of_a_load(head: bytes) -> bool:
    return head[4:6] == struct.pack(">h", PRODUCE) and head[_CLIENT_ID_AT:] == _CLIENT_ID


async def relay(listen: str, upstream: str) -> None:
    """Relay until SIGTERM."""
    serving = asyncio.ensure_future(serve(Stamped, listen, upstream))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    uvloop.run(relay(*sys.argv[1:3]))
    Path(sys.argv[3]).write_text(json.dumps(Stamped.answered))
