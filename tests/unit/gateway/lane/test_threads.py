"""The threads of lanes (threads.c, module.c) on real sockets: bytes in order, in flight and counted, however often a
connection is lent and taken back.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate, count
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from pidgate.gateway.lane.answers import ANSWER_PLAIN_SUCCESS, ANSWER_UNREAD
from pidgate.gateway.lane.lanes import Counted, Left
from pidgate.protocol.frames import uvarint
from pidgate.version import has_lanes
from tests.support.inputs import ROOT
from tests.support.native_core import LANE
from tests.support.rules import rule

pytestmark = pytest.mark.skipif(not has_lanes(), reason="the extension is not built")

VERSION: Final = 9
HEARTBEAT: Final = 12
HEAD: Final = b"\0\0\0\x09"
SAME: Final = b"\0\1c\0\0\xff\xff\0\0\x75\x30"  # client id, tags, no transactional id, acks, timeout
ID: Final = (7).to_bytes(8, "big") + b"\0\0"
TOPIC: Final = b"t"
FOR_EVER: Final = 1 << 60
ANY_BYTES: Final = (1 << 64) - 1
PATIENCE_S: Final = 20.0
IN_FLIGHT: Final = 20


def produce(correlation_id: int, value_bytes: int, batches: int = 1) -> bytes:
    """Return a framed request of so many batches, each of another partition."""
    records = bytes(value_bytes)
    batch = (
        bytes(8) + (49 + value_bytes).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(4 + 2 + 4 + 8 + 8) + ID
        + bytes(4) + (1).to_bytes(4, "big") + records
    )  # fmt: skip
    entries = b"".join(
        number.to_bytes(4, "big") + uvarint(len(batch) + 1) + batch + b"\0" for number in range(batches)
    )
    body = b"\x02" + uvarint(len(TOPIC) + 1) + TOPIC + uvarint(batches + 1) + entries
    return framed(HEAD + struct.pack(">i", correlation_id) + SAME + body + b"\0\0")


def heartbeat(correlation_id: int, filler: int) -> bytes:
    return framed(struct.pack(">hhi", HEARTBEAT, 4, correlation_id) + bytes(filler))


def plain_success(correlation_id: int) -> bytes:
    topic = uvarint(len(TOPIC) + 1) + TOPIC + b"\x02" + bytes(4 + 2 + 8 + 8 + 8) + b"\x01\0\0" + b"\0"
    return framed(struct.pack(">i", correlation_id) + b"\0\x02" + topic + bytes(4) + b"\0")


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection: a pipe cannot be spliced into every kind of socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


@pytest.fixture
def lane() -> Iterator[Any]:
    from pidgate.gateway.lane import _lane

    thread = _lane.Lane()
    yield thread
    thread.stop()


@pytest.fixture
def here() -> Iterator[Any]:
    """A lane without a thread."""
    from pidgate.gateway.lane import _lane

    lane = _lane.Lane(False)
    yield lane
    lane.stop()


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@dataclass
class Carried:
    """One connection: its application, its broker, and who lends it in between."""

    lane: Any
    stack: ExitStack
    cells: tuple[Any, Any] = ()  # type: ignore[assignment]
    in_flight: list[tuple[int, int, int, int]] = field(default_factory=list)
    requests: int = 0
    request_bytes: int = 0
    answer_bytes: int = 0
    left: list[Left] = field(default_factory=list)

    def __post_init__(self) -> None:
        from pidgate.gateway.lane import _lane

        self.cells = _lane.Cell(), _lane.Cell()
        self.apis = _lane.Apis([(HEARTBEAT, 4, ANSWER_UNREAD)], [], [])
        self.application, self.client = pair()
        self.broker, self.at_broker = pair()
        for end in (self.application, self.client, self.broker, self.at_broker):
            self.stack.enter_context(end)
        self.client.setblocking(False)
        self.broker.setblocking(False)

    def lend(self) -> int:
        grant = (HEAD, SAME, ID, VERSION, -1, False, FOR_EVER, 1 << 21, ANY_BYTES, [(TOPIC, None)])
        handle: int = self.lane.lend(
            self,
            self.client.fileno(),
            self.broker.fileno(),
            grant,
            self.apis,
            *self.cells,
            self.in_flight,
        )
        return handle

    def lend_here(self) -> int:
        """Lend it to a lane without a thread."""
        grant = (HEAD, SAME, ID, VERSION, -1, False, FOR_EVER, 1 << 21, ANY_BYTES, [(TOPIC, None)])
        handle: int = self.lane.lend(self, -1, -1, grant, self.apis, *self.cells, self.in_flight)
        return handle

    def counted(self, counts: Any) -> None:
        counted = Counted._make(counts)
        self.requests += counted.produce_requests + counted.other_requests
        self.request_bytes += counted.request_bytes
        self.answer_bytes += counted.answer_bytes

    def take_back(self, handle: int) -> Left | None:
        written = self.lane.take_back(handle)
        return None if written is None else Left._make(written)

    def leaves(self) -> Left:
        """Wait until the lane gives it back."""
        readable, _, _ = select.select([self.lane.fileno()], [], [], PATIENCE_S)
        assert readable, "the lane kept it"
        ((owner, left),) = self.lane.take_left()
        assert owner is self
        return Left._make(left)


def receive(end: socket.socket, size: int) -> bytes:
    end.settimeout(PATIENCE_S)
    data = bytearray()
    while len(data) < size:
        part = end.recv(min(size - len(data), 1 << 20))
        assert part, "closed"
        data += part
    return bytes(data)


def is_silent(end: socket.socket) -> bool:
    readable, _, _ = select.select([end], [], [], 0.05)
    return not readable


def test_what_is_granted_passes_both_ways_and_is_counted(lane: Any, sockets: ExitStack) -> None:
    carried = Carried(lane, sockets)
    handle = carried.lend()
    frames = [produce(1, 10), heartbeat(2, 30), produce(3, 900_000)]
    carried.application.sendall(frames[0])
    assert receive(carried.at_broker, len(frames[0])) == frames[0]
    carried.application.sendall(frames[1])
    assert receive(carried.at_broker, len(frames[1])) == frames[1]
    threading.Thread(target=carried.application.sendall, args=(frames[2],)).start()
    assert receive(carried.at_broker, len(frames[2])) == frames[2]
    answers = plain_success(1) + framed(struct.pack(">i", 2) + bytes(6))
    carried.at_broker.sendall(answers)
    assert receive(carried.application, len(answers)) == answers
    left = carried.take_back(handle)
    assert left is not None
    carried.counted(left.counted)
    assert (carried.requests, carried.request_bytes) == (3, sum(map(len, frames)))
    assert carried.answer_bytes == len(answers)
    assert left.in_flight == [(3, 0, VERSION, ANSWER_PLAIN_SUCCESS)]
    assert left.client_rest + left.broker_rest + left.to_client + left.to_broker == b""
    assert dict(lane.take_requests()) == {0: 2, HEARTBEAT: 1}
    assert lane.lent == 0


@rule("No request passes in a lane once a cell of its grant was bumped.", "order")
@pytest.mark.parametrize("which", [0, 1])
def test_nothing_passes_after_a_bump(lane: Any, sockets: ExitStack, which: int) -> None:
    carried = Carried(lane, sockets)
    carried.lend()
    frame = produce(1, 10)
    carried.application.sendall(frame)
    assert receive(carried.at_broker, len(frame)) == frame, "the control: it passes before"
    carried.cells[which].bump()
    later = produce(2, 10)
    carried.application.sendall(later)
    left = carried.leaves()
    assert left.client_rest == later
    assert is_silent(carried.at_broker)


def test_a_frame_under_way_is_finished_after_a_bump(lane: Any, sockets: ExitStack) -> None:
    carried = Carried(lane, sockets)
    carried.lend()
    frame, later = produce(1, 100_000), produce(2, 10)
    carried.application.sendall(frame[:50_000])
    assert receive(carried.at_broker, 50_000) == frame[:50_000]
    carried.cells[0].bump()
    carried.application.sendall(frame[50_000:] + later)
    assert receive(carried.at_broker, len(frame) - 50_000) == frame[50_000:]
    left = carried.leaves()
    assert left.client_rest == later
    assert left.request_left == 0


def test_in_mid_frame_it_comes_back_with_what_is_left(lane: Any, sockets: ExitStack) -> None:
    carried = Carried(lane, sockets)
    handle = carried.lend()
    frame = produce(5, 100_000)
    carried.application.sendall(frame[:40_000])
    receive(carried.at_broker, 40_000)
    left = carried.take_back(handle)
    assert left is not None
    assert left.request_left == len(frame) - 40_000
    assert left.under_way == (5, len(frame) - 4, 1, TOPIC, 0)
    assert left.in_flight == [], "brokers act on whole frames only"


def test_what_a_lane_may_not_pass_comes_back_unforwarded(lane: Any, sockets: ExitStack) -> None:
    carried = Carried(lane, sockets)
    carried.lend()
    good, foreign = produce(1, 10), framed(struct.pack(">hhi", 3, 12, 9) + bytes(5))
    carried.application.sendall(good + foreign)
    left = carried.leaves()
    assert receive(carried.at_broker, len(good)) == good
    assert left.client_rest == foreign
    assert is_silent(carried.at_broker)


@pytest.mark.parametrize(("value_bytes", "passes"), [(300_000, True), (330_000, False)])
def test_a_long_request_of_several_batches_is_kept_until_it_is_whole(
    lane: Any, sockets: ExitStack, value_bytes: int, passes: bool
) -> None:
    carried, request = Carried(lane, sockets), produce(1, value_bytes, 4)
    following = produce(2, 50, 2)
    carried.lend()
    sending = threading.Thread(target=carried.application.sendall, args=(request + following,))
    sending.start()
    if passes:
        assert receive(carried.at_broker, len(request + following)) == request + following
    else:
        left = carried.leaves()
        assert (left.to_broker, left.client_rest) == (b"", request[: len(left.client_rest)])
        assert is_silent(carried.at_broker)
        carried.client.setblocking(True)
        receive(carried.client, len(request + following) - len(left.client_rest))
    sending.join(PATIENCE_S)
    assert not sending.is_alive()


@rule("No request passes in a lane once a cell of its grant was bumped.", "order")
def test_a_lane_without_a_thread_passes_nothing_after_a_bump(here: Any, sockets: ExitStack) -> None:
    carried = Carried(here, sockets)
    handle, frame, later = carried.lend_here(), produce(1, 10), produce(2, 10)
    assert here.carry(handle, True, frame) == frame, "the control: it passes before"
    carried.cells[1].bump()
    assert here.carry(handle, True, later) is None
    left = carried.take_back(handle)
    assert left is not None
    assert (left.client_rest, left.to_broker) == (later, b"")


def test_a_lane_without_a_thread_gives_back_what_it_may_not_pass(here: Any, sockets: ExitStack) -> None:
    carried = Carried(here, sockets)
    good, foreign = produce(1, 10), framed(struct.pack(">hhi", 3, 12, 9) + bytes(5))
    handle = carried.lend_here()
    assert here.carry(handle, True, (good + foreign)[:7]) == b""
    assert here.carry(handle, True, (good + foreign)[7:]) is None
    left = carried.take_back(handle)
    assert left is not None
    assert (left.to_broker, left.client_rest) == (good, foreign)
    assert left.in_flight == [(1, 0, VERSION, ANSWER_PLAIN_SUCCESS)]


@rule(
    "A lane loses, doubles and reorders no byte, however often it lends a connection and gives it back.",
    "order",
)
def test_a_lane_without_a_thread_with_reads_cut_at_random(here: Any, sockets: ExitStack) -> None:
    carried, dice = Carried(here, sockets), Random(5)
    frames = [produce(number, dice.choice([1, 800, 9_000]), dice.choice([1, 3])) for number in range(300)]
    sent, ends = b"".join(frames), list(accumulate(map(len, frames)))
    received, handle, at, answered, stays = bytearray(), carried.lend_here(), 0, 0, 1
    while at < len(sent):
        data = sent[at : at + dice.choice([1, 5, 900, 30_000, 100_000])]
        at += len(data)
        passed = here.carry(handle, True, data)
        if passed is None:
            left = carried.take_back(handle)
            assert left is not None
            carried.counted(left.counted)
            carried.in_flight = left.in_flight
            at -= len(left.client_rest)
            # Its owner sends the rest of the frame under way.
            passed = left.to_broker + sent[at : at + left.request_left]
            at += left.request_left
            if left.under_way is not None:
                carried.requests += 1
                carried.in_flight.append((left.under_way[0], 0, VERSION, ANSWER_PLAIN_SUCCESS))
            handle, stays = carried.lend_here(), stays + 1
        received += passed
        while answered < len(ends) and ends[answered] <= len(received):
            assert here.carry(handle, False, plain_success(answered)) == plain_success(answered)
            answered += 1
    assert received == sent
    assert stays > 20
    left = carried.take_back(handle)
    assert left is not None
    carried.counted(left.counted)
    assert (carried.requests, left.in_flight) == (len(frames), [])


@pytest.mark.parametrize("closes", ["application", "at_broker"])
def test_an_end_of_stream_is_left_to_the_transport(lane: Any, sockets: ExitStack, closes: str) -> None:
    carried = Carried(lane, sockets)
    carried.lend()
    getattr(carried, closes).close()
    left = carried.leaves()
    assert left.client_rest + left.broker_rest == b""
    gone = carried.client if closes == "application" else carried.broker
    assert gone.recv(1) == b""


@rule(
    "A lane loses, doubles and reorders no byte, however often it lends a connection and gives it back.",
    "order",
)
def test_lent_and_taken_back_at_random(lane: Any, sockets: ExitStack) -> None:
    carried, dice = Carried(lane, sockets), Random(7)
    script = Script(dice)
    application = threading.Thread(target=script.send, args=(carried.application,))
    broker = threading.Thread(target=script.answer, args=(carried.at_broker,))
    reader = threading.Thread(target=script.read_answers, args=(carried.application,))
    for thread in (application, broker, reader):
        thread.start()
    rounds = lend_until_done(carried, script, dice)
    for thread in (application, broker, reader):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert script.received == script.sent, "requests"
    assert script.answers_received == script.answers_sent, "answers"
    assert carried.requests == script.count, "counted once each"
    assert carried.request_bytes == len(script.sent)
    assert rounds > 20, "it was lent once only"


class Script:
    """An application that sends requests of all sizes, and a broker that answers each."""

    count: Final = 600

    def __init__(self, dice: Random) -> None:
        sizes = [dice.choice([1, 50, 800, 20_000, 70_000, 300_000]) for _ in range(self.count)]
        self.frames = [
            produce(number, size, dice.choice([1, 1, 3]))
            if dice.random() < 0.8
            else heartbeat(number, min(size, 5_000))
            for number, size in enumerate(sizes)
        ]
        self.sent = b"".join(self.frames)
        self._starts = list(accumulate(map(len, self.frames), initial=0))
        self._may_begin = threading.Semaphore(IN_FLIGHT)
        self.received = bytearray()
        self.answers_sent = bytearray()
        self.answers_received = bytearray()
        self.is_over = threading.Event()
        self._dice = Random(3)

    def send(self, end: socket.socket) -> None:
        at = begun = 0
        while at < len(self.sent):
            to = at + self._dice.choice([1, 7, 100, 5_000, 100_000, 1_000_000])
            self._may_begin.acquire()
            begun += 1
            while begun < self.count and self._starts[begun] < to and self._may_begin.acquire(blocking=False):
                begun += 1
            to = min(to, self._starts[begun])
            if to < self._starts[begun]:
                self._may_begin.release()  # the frame goes on with the next piece
                begun -= 1
            end.sendall(self.sent[at:to])
            at = to

    def answer(self, end: socket.socket) -> None:
        for number, frame in enumerate(self.frames):
            got = receive(end, len(frame))
            self.received += got
            if got[5] == HEARTBEAT:
                answer = framed(struct.pack(">i", number) + bytes(100 * (number % 50)))
            else:
                answer = plain_success(number)
            self.answers_sent += answer
            end.sendall(answer)

    def read_answers(self, end: socket.socket) -> None:
        corr = count()
        while next(corr) < self.count:
            head = receive(end, 4)
            self.answers_received += head + receive(end, int.from_bytes(head, "big"))
            self._may_begin.release()
        self.is_over.set()


def lend_until_done(carried: Carried, script: Script, dice: Random) -> int:
    """Lend, take back at some moment, pass on by hand what was left, and lend again; return how often."""
    rounds = 0
    while not script.is_over.is_set():
        handle = carried.lend()
        rounds += 1
        script.is_over.wait(dice.choice([0, 0.0005, 0.002, 0.01]))
        left = carried.take_back(handle)
        if left is None:
            left = carried.leaves()
        carried.counted(left.counted)
        carried.in_flight = left.in_flight
        go_on(carried, left)
    return rounds


def go_on(carried: Carried, left: Left) -> None:
    """Do what a gateway does with a connection that comes back, up to the next frame in both directions."""
    carried.client.settimeout(PATIENCE_S)
    carried.broker.settimeout(PATIENCE_S)
    carried.client.sendall(left.to_client)
    carried.broker.sendall(left.to_broker)
    answers = finish(left.broker_rest, left.answer_left, carried.broker)
    if left.answer_left:
        carried.in_flight.pop(0)
    carried.client.sendall(answers)
    carried.answer_bytes += len(answers)
    for _ in frames_of(answers[left.answer_left :]):
        carried.in_flight.pop(0)
    requests = finish(left.client_rest, left.request_left, carried.client)
    carried.broker.sendall(requests)
    carried.request_bytes += len(requests)
    if left.under_way is not None:
        carried.requests += 1
        carried.in_flight.append((left.under_way[0], 0, VERSION, ANSWER_PLAIN_SUCCESS))
    for frame in frames_of(requests[left.request_left :]):
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        passing = ANSWER_PLAIN_SUCCESS if api_key == 0 else ANSWER_UNREAD
        carried.requests += 1
        carried.in_flight.append((correlation_id, api_key, version, passing))
    carried.client.setblocking(False)
    carried.broker.setblocking(False)


def finish(rest: bytes, left_bytes: int, end: socket.socket) -> bytes:
    """Return the rest with what is missing of its last frame; `left_bytes` of it belong to an earlier one."""
    data = bytearray(rest)
    if len(data) < left_bytes:
        data += receive(end, left_bytes - len(data))
    at = left_bytes
    while at < len(data):
        if len(data) - at < 4:
            data += receive(end, 4 - (len(data) - at))
        frame_end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if len(data) < frame_end:
            data += receive(end, frame_end - len(data))
        at = frame_end
    return bytes(data)


def frames_of(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def built_with_thread_sanitizer(folder: Path, change: tuple[str, str] | None) -> Path:
    """Compile the extension; `change` replaces a text of threads.c. Returns a folder for PYTHONPATH that loads it."""
    sources = folder / "lane"
    shutil.copytree(LANE, sources)
    threads = sources / "threads.c"
    text = threads.read_text()
    if change is not None:
        assert text.count(change[0]) == 1
        threads.write_text(text.replace(*change))
    library = folder / "_lane.so"
    include = sysconfig.get_paths()["include"]
    files = [str(sources / f"{name}.c") for name in ("core", "threads", "module")]
    options = ["-std=c11", "-O1", "-g", "-fsanitize=thread", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run(["cc", *options, *files, "-o", str(library)], check=True)
    (folder / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('pidgate.gateway.lane._lane', {str(library)!r})\n"
        "sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
    )
    return folder


@rule("Lanes and Python's thread share nothing without the lane's lock.", "order")
@pytest.mark.parametrize(
    ("change", "races"),
    [
        (None, False),
        (
            (
                "pthread_mutex_lock(&lane->lock);\n            /* It may",
                "lane->announced_bytes++;\n            pthread_mutex_lock(&lane->lock);\n            /* It may",
            ),
            True,
        ),
    ],
    ids=["as it is", "a number counted without the lock"],
)
def test_under_the_thread_sanitizer(tmp_path: Path, change: tuple[str, str] | None, races: bool) -> None:
    runtime = subprocess.run(
        ["cc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
    )
    if not Path(runtime.stdout.strip()).exists():
        pytest.skip("the compiler has no thread sanitizer")
    folder = built_with_thread_sanitizer(tmp_path, change)
    test = f"{__file__}::test_lent_and_taken_back_at_random"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reruns", "0", test],
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "LD_PRELOAD": runtime.stdout.strip(),
            "TSAN_OPTIONS": f"log_path={tmp_path}/race exitcode=0",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    reports = [report.read_text() for report in tmp_path.glob("race.*")]
    assert any("data race" in report for report in reports) is races, reports
