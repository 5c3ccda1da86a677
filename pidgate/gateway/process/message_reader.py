"""Reading of a link between processes, in turns of the event loop.

One read may hold some thousand questions, which take tenths of a second: everybody else would wait for so long
(protocol/work.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.gateway.process.wire import Decoder, Message

MESSAGES_PER_TURN: Final = 16
"""A question about as many ids as a request may name takes 0.4 ms."""


class MessageReader:
    """Bytes in, messages handled in order, MESSAGES_PER_TURN in a turn; nothing is read while some wait.

    What decoding or handling raises ends the link and drops what waits; `failed` is called with it, to say so.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        handle: Callable[[Message], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._handle = handle
        self._failed = failed
        self._decoder = Decoder()
        self._next_turn: asyncio.Handle | None = None

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._decoder.feed(data)
        if self._next_turn is None:
            self._turn()

    def end(self) -> None:
        """Handle what waits, now: the other side has ended."""
        while self._next_turn is not None:
            self._next_turn.cancel()
            self._turn()

    def _turn(self) -> None:
        was_waiting, self._next_turn = self._next_turn is not None, None
        try:
            for _ in range(MESSAGES_PER_TURN):
                message = next(self._decoder, None)
                if message is None:
                    break
                self._handle(message)
            else:
                self._next_turn = self._loop.call_soon(self._turn)
        except Exception as error:  # noqa: BLE001 - either side says what it means to it
            self._decoder = Decoder()
            self._failed(error)
            self._transport.abort()
        waits = self._next_turn is not None
        if waits != was_waiting and not self._transport.is_closing():
            (self._transport.pause_reading if waits else self._transport.resume_reading)()
