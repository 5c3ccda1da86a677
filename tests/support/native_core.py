"""The core of the lane (pidgate/gateway/lane/core.c), compiled for tests and called by ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.inputs import ROOT

LANE: Final = ROOT / "pidgate/gateway/lane"
BINDING: Final = ROOT / "tests/support/native_core.c"
MOST_IN_FLIGHT: Final = 64
MOST_PARTITIONS: Final = 1024
MOST_UNIT_BYTES: Final = 4096
MOST_KEPT_BYTES: Final = 1_310_724
MOST_KEPT_ANSWER_BYTES: Final = 65_536

WARNINGS: Final = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror")
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")

Change = tuple[str, str]
"""A text that is in core.c once, and the one to compile in its place."""


class Next(IntEnum):
    """What happens to the bytes that did not pass: see core.h."""

    MORE = 0
    TO_PYTHON = 1
    AT_TAGS = 2
    BROKEN = 3


class Passing(IntEnum):
    """How the answer to a request passes: see core.h."""

    ASK = 0
    UNREAD = 1
    ENDS_IN_TAGS = 2
    PLAIN_SUCCESS = 3


class InFlight(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    passing: Passing


class Granted(NamedTuple):
    """What a core may pass."""

    head: bytes
    same: bytes
    id: bytes
    version: int
    acks: int
    transactional: bool
    until_ms: int
    most_streamed_bytes: int
    topics: Mapping[bytes, Collection[int]]
    """As in a request, and the partitions."""
    apis: Mapping[tuple[int, int], Passing]
    guarded: Collection[int]
    needles: Sequence[bytes]
    leased_bytes: int = (1 << 64) - 1


class State(ctypes.Structure):
    """The numbers of a core."""

    request_left: int
    answer_left: int
    answer_unread: int
    unit: int
    produce_requests: int
    produce_bytes: int
    batches: int
    records: int
    last_produce_ms: int
    other_requests: int
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "request_left",
            "answer_left",
            "answer_unread",
            "unit",
            "produce_requests",
            "produce_bytes",
            "batches",
            "records",
            "last_produce_ms",
            "other_requests",
        )
    ]


def signed(number: int) -> int:
    """Return an unsigned number of 32 bits as a signed one, as correlation ids are in Python."""
    return number - (1 << 32) if number >> 31 else number


def compiler() -> str | None:
    """Return the C compiler, or None where there is none."""
    return shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])


def build(folder: Path, *changes: Change, flags: Sequence[str] = ()) -> Path:
    """Compile the core, with these changes of its text, and return the library."""
    source = (LANE / "core.c").read_text("utf-8")
    for old, new in changes:
        assert source.count(old) == 1, f"core.c has {source.count(old)} times: {old}"
        source = source.replace(old, new)
    core, library = folder / "core.c", folder / "core.so"
    core.write_text(source, "utf-8")
    command = [compiler() or "cc", "-std=c11", "-O1", "-g", "-fPIC", "-shared", f"-I{LANE}", *flags]
    subprocess.run([*command, core, BINDING, "-o", library], check=True)
    return library


def load(library: Path) -> ctypes.CDLL:
    native = ctypes.CDLL(str(library))
    native.tested_new.restype = ctypes.c_void_p
    native.tested_look.restype = ctypes.c_uint64
    native.tested_requests.restype = ctypes.c_uint32
    return native


@cache
def built() -> ctypes.CDLL | None:
    """Return the core as it is now, compiled once for all processes. None: there is no compiler."""
    if compiler() is None:
        return None
    sources = (LANE / "core.h", LANE / "core.c", BINDING, Path(__file__))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    library = ROOT / "build" / "lane-core" / f"{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            os.replace(build(Path(folder)), library)
    return load(library)


class NativeCore:
    """One connection's core. Free it with `close`."""

    def __init__(self, native: ctypes.CDLL, granted: Granted) -> None:
        self._native = native
        self._topics = list(granted.topics)
        self._core = core = ctypes.c_void_p(
            native.tested_new(
                granted.head,
                granted.same,
                ctypes.c_size_t(len(granted.same)),
                granted.id,
                granted.version,
                granted.acks,
                granted.transactional,
                ctypes.c_int64(granted.until_ms),
                ctypes.c_uint32(granted.most_streamed_bytes),
                ctypes.c_uint64(granted.leased_bytes),
                len(granted.topics),
            )
        )
        for at, (name, partitions) in enumerate(granted.topics.items()):
            native.tested_name_topic(core, at, name, ctypes.c_size_t(len(name)))
            for partition in partitions:
                native.tested_allow(core, at, partition)
        for (api_key, version), passing in granted.apis.items():
            native.tested_pass_api(core, api_key, version, passing, api_key in granted.guarded)
        for needle in granted.needles:
            native.tested_add_needle(core, needle, ctypes.c_size_t(len(needle)))

    def lent(self, passing: NativeCore, requests_by_api: Any) -> None:
        """Share what other cores of a thread share: APIs that pass, and counts of requests (128 numbers)."""
        self._native.tested_share_apis(self._core, passing._core)
        self._native.tested_count_in(self._core, requests_by_api)

    def allow(self, at: int, bits: bytes) -> None:
        """Allow partitions of a topic, as 128 bytes of bits."""
        self._native.tested_allow_bits(self._core, at, bits)

    def put_in_flight(self, correlation_id: int, api_key: int, version: int, passing: int) -> None:
        self._native.tested_put_in_flight(self._core, correlation_id, api_key, version, passing)

    def may_stream(self, may_stream: bool) -> None:
        self._native.tested_may_stream(self._core, may_stream)

    def take_counts(self) -> tuple[State, list[tuple[bytes, bytes]]]:
        """Return what was counted since the last time, and the partitions written, 128 bytes of bits each."""
        state = self.state
        self._native.tested_forget_counts(self._core)
        written = []
        bits = ctypes.create_string_buffer(MOST_PARTITIONS // 8)
        for at, topic in enumerate(self._topics if state.produce_requests else ()):
            if self._native.tested_take_written(self._core, at, bits):
                written.append((topic, bits.raw))
        return state, written

    @property
    def under_way(self) -> tuple[int, int, int, bytes, int]:
        """The Produce of which a part has passed: correlation id, bytes, records, topic, partition."""
        numbers = (ctypes.c_uint64 * 5)()
        self._native.tested_under_way(self._core, numbers)
        correlation_id, nbytes, records, topic, partition = numbers
        return signed(correlation_id), nbytes, records, self._topics[topic], partition

    def close(self) -> None:
        self._native.tested_free(self._core)

    def look(self, data: bytes, now_ms: int, *, is_request: bool) -> tuple[int, Next]:
        """Return how many bytes pass, and what comes next."""
        found = self._native.tested_look(
            self._core, is_request, data, ctypes.c_size_t(len(data)), ctypes.c_int64(now_ms)
        )
        return found >> 2, Next(found & 3)

    def skip(self, nbytes: int, now_ms: int, *, is_request: bool) -> None:
        self._native.tested_skip(self._core, is_request, ctypes.c_uint64(nbytes), ctypes.c_int64(now_ms))

    @property
    def state(self) -> State:
        state = State()
        self._native.tested_state(self._core, ctypes.byref(state))
        return state

    @property
    def walk(self) -> tuple[int, int, int, int, int]:
        """The walk of the Fetch answer under way, as EndpointsWalker.resume takes it."""
        numbers = (ctypes.c_uint32 * 4)()
        self._native.tested_walk(self._core, numbers)
        unit, topics, partitions, elements = numbers
        return unit, topics, partitions, elements, self.state.answer_unread

    @property
    def in_flight(self) -> list[InFlight]:
        requests = ((ctypes.c_uint32 * 4) * MOST_IN_FLIGHT)()
        count = self._native.tested_in_flight(self._core, requests)
        return [
            InFlight(signed(correlation_id), api_key, version, Passing(passing))
            for correlation_id, api_key, version, passing in requests[:count]
        ]

    def requests_of(self, api_key: int) -> int:
        """Return how many requests of this API have passed."""
        count: int = self._native.tested_requests(self._core, api_key)
        return count

    def is_written(self, topic: bytes, partition: int) -> bool:
        return bool(self._native.tested_is_written(self._core, self._topics.index(topic), partition))
