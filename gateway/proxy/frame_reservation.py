"""Memory for the one request frame of a client that has begun to arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidgate.gateway.proxy.buffers import BudgetShare, BufferBudget, Purpose
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, Pause, ReadGate
from pidgate.gateway.proxy.receive_buffer import SIZE_BYTES, ReceiveBuffer, first_large_bytes, frame_size

STALLED_MS: Final = 5_000
SLOWEST_FRAME_BYTES_PER_S: Final = 16 * 1024
"""While others wait for memory, a frame that holds some has to come at least as fast as this."""


class FrameReservation:
    """The part of the budget that the arriving frame holds; reading pauses while there is nothing left."""

    def __init__(
        self,
        budget: BufferBudget,
        share: BudgetShare,
        received: ReceiveBuffer,
        gate: ReadGate,
        now_ms: Callable[[], int],
    ) -> None:
        self._budget = budget
        self._share = share
        self._received = received
        self._gate = gate
        self._now_ms = now_ms
        self._since_ms = 0
        self._arrived_then_bytes = 0

    @property
    def is_held(self) -> bool:
        """True while the arriving frame holds memory."""
        return self._share.held(Purpose.FRAME) > 0

    def keep(self, buf: bytes | bytearray, start: int, end: int) -> None:
        """Keep buf[start:end], the beginning of a frame; wait for memory when there is none for the rest of it."""
        large_bytes = self._received.keep(buf, start, end)
        if (end - start < SCARCE_READ_BYTES and not large_bytes) or self.is_held:
            return
        if large_bytes:
            self._reserve_or_wait(first_large_bytes(large_bytes, end - start), large_bytes)
        else:
            self._reserve_or_wait(SIZE_BYTES + frame_size(buf, start), 0)

    def grow(self) -> None:
        """Hold, or wait for, what the buffer of a large frame will be grown to."""
        wanted_bytes = self._received.wanted_bytes
        if wanted_bytes:
            self._reserve_or_wait(wanted_bytes, 0)

    def drop(self) -> None:
        """Give everything back: the frame is complete, or its connection gone."""
        self._share.hold(Purpose.FRAME, 0)
        self._budget.leave(self)

    def is_stalled(self, now_ms: int) -> bool:
        """True when the frame keeps memory from others and does not come on."""
        age_ms = now_ms - self._since_ms
        return (
            self._budget.is_waited_for
            and self.is_held
            and not self._gate.reasons
            and age_ms > STALLED_MS
            and (self._received.arrived_bytes - self._arrived_then_bytes) * 1000
            < age_ms * SLOWEST_FRAME_BYTES_PER_S
        )

    def _reserve_or_wait(self, amount_bytes: int, large_bytes: int) -> None:
        """Hold so much; `large_bytes`: the frame begins now, and is that large."""
        if self._budget.must_wait(self):
            self._gate.pause(Pause.BUDGET)
            self._share.hold(Purpose.FRAME, self._received.arrived_bytes)
            self._budget.wait(self, lambda: self._reserve(amount_bytes, large_bytes))
        else:
            self._reserve(amount_bytes, large_bytes)

    def _reserve(self, amount_bytes: int, large_bytes: int) -> None:
        self._share.hold(Purpose.FRAME, amount_bytes)
        if large_bytes:
            self._received.expect_large(large_bytes)
        self._since_ms = self._now_ms()
        self._arrived_then_bytes = self._received.arrived_bytes
        self._gate.resume(Pause.BUDGET)
