"""The one request frame of a client that is arriving: its memory, or its forwarding, and its deadline."""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.buffers import BudgetShare, BufferBudget, Purpose
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, Pause, ReadGate
from pidgate.gateway.proxy.receive_buffer import (
    SIZE_BYTES,
    ReceiveBuffer,
    first_large_bytes,
    frame_size,
    large_frame_bytes,
)
from pidgate.protocol import messages

WAITED_FOR_MS: Final = 5_000
"""Time for a frame while other frames wait for memory. Most frames arrive in one round trip."""
BYTES_PER_MS: Final = 1024 * 1024 // 1000
"""A frame's time grows with the bytes that have arrived, not with its announced length. Clients time out a
request after 30 to 60 s, however large it is."""

KEPT_FRAME_BYTES: Final = 5 * 256 * 1024
"""Frames above this size may be forwarded while they arrive. Clients send up to 1 MiB by default
(max.request.size), and a buffered frame leaves in one write, which costs a quarter less than in pieces."""

REQUEST_HEAD_BYTES: Final = SIZE_BYTES + 2
"""Size and api_key: they determine how large a request may be."""

_AUTHENTICATES: Final = (messages.SASL_HANDSHAKE, messages.SASL_AUTHENTICATE)


def is_of_login(buf: bytes | bytearray, pos: int) -> bool:
    """Return whether the request with its size at `pos` is part of a login.

    Brokers limit such requests at any time (SaslServerAuthenticator, sasl.server.max.receive.size), so a
    large one is not buffered whole.
    """
    return buf[pos + SIZE_BYTES] << 8 | buf[pos + SIZE_BYTES + 1] in _AUTHENTICATES


class FrameReservation:
    """The arriving frame's part of the memory budget. Reading pauses while the budget is spent."""

    def __init__(
        self, budget: BufferBudget, share: BudgetShare, received: ReceiveBuffer, gate: ReadGate
    ) -> None:
        self._budget = budget
        self._share = share
        self._received = received
        self._gate = gate
        self.is_under_way = False
        """A frame has begun and is incomplete. A plain attribute, because every read checks it."""
        self.is_held = False
        """The arriving frame holds memory."""
        self.left_bytes = 0
        """Bytes still to arrive of a frame being forwarded; 0: none."""
        self._purpose = Purpose.SMALL_FRAME
        self._frame_bytes = 0
        self._reading_ms = 0
        self.lent_since_ms = 0
        """Since when a lane carries a frame that is incomplete; 0: none."""
        self._looked_ms = 0
        """Time of the latest deadline check of this frame; 0: none yet."""

    def keep(self, buf: bytes | bytearray, start: int, end: int) -> bool:
        """Buffer buf[start:end], the beginning of a frame; wait if there is no memory for the rest.

        Returns False when there is no room to wait either, before a login.
        """
        arrived_bytes = end - start
        if not self.is_under_way:
            self.is_under_way = True
            self._frame_bytes = self._reading_ms = self._looked_ms = 0
        if not self._frame_bytes and arrived_bytes >= SIZE_BYTES:
            self._frame_bytes = SIZE_BYTES + frame_size(buf, start)
            self._budget.largest_frame_bytes = max(self._budget.largest_frame_bytes, self._frame_bytes)
            is_small = self._frame_bytes <= self._budget.small_frame_bytes
            self._purpose = Purpose.SMALL_FRAME if is_small else Purpose.LARGE_FRAME
        large_bytes = large_frame_bytes(buf, start, end, REQUEST_HEAD_BYTES)
        if not large_bytes:
            self._received.keep(buf, start, end)
            if arrived_bytes >= SCARCE_READ_BYTES and not self.is_held:
                return self._reserve_or_wait(self._frame_bytes)
            return True
        wanted_bytes = first_large_bytes(large_bytes, arrived_bytes)
        # Reserve before allocating: recycled memory is resident even if nothing is read into it.
        may_hold = self._share.may_hold(self, self._purpose, wanted_bytes)
        self._received.keep_large(buf, start, end, large_bytes, wanted_bytes if may_hold else arrived_bytes)
        return self._reserve_or_wait(wanted_bytes)

    def may_pass_on(self, frame_bytes: int, arrived_bytes: int) -> bool:
        """Reserve a frame that is forwarded while it arrives, if there is room for its length."""
        if not self._share.may_hold(self, Purpose.PASSED_ON, frame_bytes):
            return False
        if not self.is_under_way:
            self._reading_ms = self._looked_ms = 0
        self.drop()
        self._share.hold(Purpose.PASSED_ON, frame_bytes)
        self._purpose = Purpose.PASSED_ON
        self._frame_bytes, self.left_bytes = frame_bytes, frame_bytes - arrived_bytes
        self._budget.largest_frame_bytes = max(self._budget.largest_frame_bytes, frame_bytes)
        self.is_under_way = self.is_held = True
        return True

    def resume(self, frame_bytes: int, left_bytes: int) -> None:
        """Go on with a frame of which a lane has forwarded all but `left_bytes`. Its beginning is at the broker."""
        self._reading_ms = self._looked_ms = 0
        self._share.hold(Purpose.PASSED_ON, frame_bytes)
        self._purpose = Purpose.PASSED_ON
        self._frame_bytes, self.left_bytes = frame_bytes, left_bytes
        self.is_under_way = self.is_held = True

    def passed_on(self, arrived_bytes: int) -> int:
        """Count arrived bytes of the frame being forwarded. Returns its size once it is complete, else 0."""
        self.left_bytes -= arrived_bytes
        if self.left_bytes:
            return 0
        self.drop()
        return self._frame_bytes

    def grow(self) -> None:
        """Reserve, or wait for, the next size of a large frame's buffer."""
        wanted_bytes = self._received.wanted_bytes
        if wanted_bytes:
            self._reserve_or_wait(wanted_bytes)

    def drop(self) -> None:
        """Release everything: the frame is complete, or its connection closed."""
        self.is_under_way = False
        self.left_bytes = 0
        share = self._share
        if share.total_bytes:
            self.is_held = False
            share.leave(self, self._purpose)
            share.hold(Purpose.WAITING, 0)
            share.hold(self._purpose, 0)

    def is_overdue(self, now_ms: int, most_ms: int) -> bool:
        """Return whether the frame has exceeded its time, which is shorter while others wait for memory.

        Called about once a second. Counts only time in which the socket was read, or would have been if the
        client read its answers: that pause is the client's own doing, even if other reasons to pause apply.
        """
        if self.lent_since_ms:
            return now_ms - self.lent_since_ms > most_ms
        if not self.is_under_way:
            return False
        reasons = self._gate.reasons
        if self._looked_ms and (not reasons or reasons & Pause.NOT_READING):
            self._reading_ms += now_ms - self._looked_ms
        self._looked_ms = now_ms
        if self.is_held and self._share.half_of(self._purpose).is_waited_for:
            most_ms = min(most_ms, WAITED_FOR_MS)
        arrived_bytes = (
            self._frame_bytes - self.left_bytes if self.left_bytes else self._received.arrived_bytes
        )
        return self._reading_ms > most_ms + arrived_bytes // BYTES_PER_MS

    def _reserve_or_wait(self, amount_bytes: int) -> bool:
        share = self._share
        if share.may_hold(self, self._purpose, amount_bytes):
            self._reserve(amount_bytes)
            return True
        if not self.is_held:
            arrived_bytes = self._received.arrived_bytes
            if share.is_before_login and not share.may_hold(self, Purpose.WAITING, arrived_bytes):
                return False
            share.hold(Purpose.WAITING, arrived_bytes)
        self._gate.pause(Pause.BUDGET)
        share.wait(self, self._purpose, amount_bytes, lambda: self._reserve(amount_bytes))
        return True

    def _reserve(self, amount_bytes: int) -> None:
        self._share.hold(self._purpose, amount_bytes)
        self._share.hold(Purpose.WAITING, 0)
        self.is_held = True
        self._received.grant(amount_bytes)
        self._gate.resume(Pause.BUDGET)
