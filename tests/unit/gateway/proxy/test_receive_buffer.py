"""Reads of any size give the same frames, and two sockets never see each other's bytes."""

import resource

from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.receive_buffer import (
    LARGEST_MOVED_BYTES,
    SIZE,
    SIZE_BYTES,
    ReceiveBuffer,
    first_large_bytes,
    large_frame_bytes,
)
from tests.support.frames import framed


class Socket:
    """The bytes of one peer, handed over in pieces as an event loop would."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.inbox = ReceiveBuffer()
        self.frames: list[bytes] = []

    def read(self, most: int) -> None:
        target = self.inbox.next_read()
        piece = self.data[: min(most, len(target))]
        self.data = self.data[len(piece) :]
        target[: len(piece)] = piece
        arrived = self.inbox.received(len(piece))
        if arrived is None:
            return
        buf, end = arrived
        pos = 0
        while end - pos >= 4:
            frame_end = pos + 4 + SIZE.unpack_from(buf, pos)[0]
            if frame_end > end:
                break
            self.frames.append(bytes(buf[pos + 4 : frame_end]))
            pos = frame_end
        if pos < end:
            large_bytes = large_frame_bytes(buf, pos, end, SIZE_BYTES)
            if large_bytes:
                granted_bytes = first_large_bytes(large_bytes, end - pos)
                self.inbox.keep_large(buf, pos, end, large_bytes, granted_bytes)
            else:
                self.inbox.keep(buf, pos, end)


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=8),
    others=st.lists(st.binary(max_size=300), max_size=8),
    steps=st.lists(st.integers(1, 200), min_size=1),
)
def test_any_split_gives_the_same_frames_beside_another_socket(
    payloads: list[bytes], others: list[bytes], steps: list[int]
) -> None:
    sockets = [Socket(b"".join(map(framed, payloads))), Socket(b"".join(map(framed, others)))]
    turn = 0
    while any(socket.data for socket in sockets):
        socket = sockets[turn % 2]
        if socket.data:
            socket.read(steps[turn % len(steps)])
        turn += 1
    assert sockets[0].frames == payloads
    assert sockets[1].frames == others
    assert all(socket.inbox.is_empty for socket in sockets)


def test_a_frame_larger_than_the_shared_buffer_gets_one_of_its_own_size() -> None:
    large = bytes(range(256)) * (READ_BUFFER_BYTES // 256 + 500)
    socket = Socket(framed(b"before") + framed(large) + framed(b"after"))
    other = Socket(framed(b"somebody else"))
    while socket.data:
        socket.read(100_000)
        if other.data:
            other.read(3)
    while other.data:
        other.read(3)
    assert socket.frames == [b"before", large, b"after"]
    assert other.frames == [b"somebody else"]


def test_a_large_buffer_is_moved_only_while_it_is_small_and_takes_memory_as_bytes_come() -> None:
    frame_bytes = 400_000_000
    inbox, sizes = ReceiveBuffer(), list[int]()
    prefix = SIZE.pack(frame_bytes - 4)
    assert large_frame_bytes(prefix, 0, 4, 4) == frame_bytes
    inbox.keep_large(prefix, 0, 4, frame_bytes, first_large_bytes(frame_bytes, 4))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        view = inbox.next_read()
        assert inbox._large is not None
        if len(inbox._large) not in sizes:
            sizes.append(len(inbox._large))
        assert len(view) <= frame_bytes
        arrived = min(len(view), LARGEST_MOVED_BYTES)
        view[:arrived] = bytes(arrived)
        del view
        inbox.received(arrived)
    assert all(size <= LARGEST_MOVED_BYTES for size in sizes[:-1])
    assert sizes[-1] == frame_bytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * inbox.arrived_bytes // 1024
