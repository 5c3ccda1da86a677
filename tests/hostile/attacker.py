"""The attacker's side of a connection: frames as they are described, over a socket that waits for nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from pidgate.load.exchanges import log_in
from pidgate.load.plan import Login
from tests.hostile.attack import Delivery, Outcome
from tests.support.raw import Closed, RawClient, request

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

ANSWER_S: Final = 30.0
"""Longer than any throttle; whoever waits longer is held for nothing."""
SILENT_S: Final = 0.3
"""How long one stays that waits for no answer."""

_ODD_SIZES: Final = (1, 2, 3, 5, 7, 11, 13, 17, 23, 29)
_ODD_ENDS_BYTES: Final = 400
_LARGE_PART_BYTES: Final = 65_537


class Attacker(RawClient):
    """One connection."""

    def log_in(self, user: str) -> None:
        """Raises LoginRefused."""
        self.run(log_in(Login(user, f"{user}-secret")))

    def attack(self, frames: Sequence[bytes], delivery: Delivery, answers: int | None = None) -> Outcome:
        """Send all and take what comes: `answers` of them (None: one for each), or the end of the connection.

        Raises TimeoutError when neither comes.
        """
        wanted = len(frames) if answers is None else answers
        if delivery is Delivery.WHOLE:
            return self._one_by_one(frames, wanted)
        parts = [b"".join(frames)] if delivery is Delivery.PIPELINED else list(odd_parts(b"".join(frames)))
        # Whoever does not read while he sends may wait for ever for one who does the same.
        sender = threading.Thread(target=self._send_all, args=(parts,), daemon=True)
        sender.start()
        outcome = self._take(wanted)
        sender.join(ANSWER_S)
        return outcome

    def _one_by_one(self, frames: Sequence[bytes], wanted: int) -> Outcome:
        answers: list[bytes] = []
        for frame in frames:
            self._send_all([frame])
            outcome = self._take(min(1, wanted - len(answers)))
            answers.extend(outcome.answers)
            if outcome.is_closed:
                return Outcome(answers, is_closed=True)
        return Outcome(answers, is_closed=False)

    def _send_all(self, parts: Sequence[bytes]) -> None:
        with suppress(OSError):  # closed meanwhile: reading shows it
            for part in parts:
                self.send(part)

    def _take(self, wanted: int) -> Outcome:
        answers: list[bytes] = []
        if not wanted:
            return Outcome(answers, is_closed=self._is_closed_soon())
        with suppress(Closed):
            while len(answers) < wanted:
                answers.append(self.frame())
            return Outcome(answers, is_closed=False)
        return Outcome(answers, is_closed=True)

    def _is_closed_soon(self) -> bool:
        self.socket.settimeout(SILENT_S)
        try:
            return self.is_closed()
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(ANSWER_S)


def odd_parts(data: bytes) -> Iterator[bytes]:
    """Cut into parts of odd sizes; what is large only near both of its ends, which is where the sense is."""
    at = number = 0
    while at < len(data):
        is_near_an_end = at < _ODD_ENDS_BYTES or at >= len(data) - _ODD_ENDS_BYTES
        size = _ODD_SIZES[number % len(_ODD_SIZES)] if is_near_an_end else _LARGE_PART_BYTES
        if not is_near_an_end:
            size = min(size, len(data) - _ODD_ENDS_BYTES - at)
        yield data[at : at + size]
        at += size
        number += 1


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    """Return a framed SaslHandshake."""
    return request(SASL_HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(token: bytes, version: int = 2) -> bytes:
    """Return a framed SaslAuthenticate."""
    return request(SASL_AUTHENTICATE, version, {"auth_bytes": token})


def plain_token(user: str, password: str | None = None) -> bytes:
    """Return what PLAIN sends (RFC 4616); by default with the right password."""
    return f"\0{user}\0{password or f'{user}-secret'}".encode()
