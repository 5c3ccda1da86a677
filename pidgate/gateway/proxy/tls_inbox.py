"""The bytes of one socket between the wire and the TLS library, and what it makes of them.

All sockets of a process are read into the same buffer, as in receive_buffer.py. What is not decrypted at once, since
the reader has paused or the turn is over, is at most one read; it is copied, and counted by the transport.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, cast

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.reading import SMALL_READ_BYTES

ENCRYPTED: Final = bytearray(READ_BUFFER_BYTES)
"""The bytes of whichever socket is read, as READ_BUFFER has them decrypted."""
ENCRYPTED_VIEW: Final = memoryview(ENCRYPTED)
SLICE_BYTES: Final = 32 * 1024
"""So much is given to the library at once, and taken from it: its buffers grow, and stay as large as they were."""
MOST_RECORD_BYTES: Final = 16 * 1024
RECORD_HEAD_BYTES: Final = 5
LARGE_RECORD_BYTES: Final = 1024
"""From this size on the bytes of a read bound its records: 256, or 5 ms if each is a KeyUpdate that was padded."""
MOST_READS_PER_TURN: Final = 1024
"""Records may be of one byte each, and each takes about 2 us."""
READS_PER_DATALESS: Final = 10
"""A record without data costs as much as so many reads: a KeyUpdate derives keys, and takes 20 us."""
MOST_DATALESS_RECORDS: Final = 32
"""In a row: OpenSSL's own bound for empty records. A server sends some tickets, and keys change every few million."""
NOTHING: Final = memoryview(b"")


class TlsInbox:
    """Inbox of what was read into ENCRYPTED_VIEW, which hands out what the library decrypts of it."""

    def __init__(self, tls: ssl.SSLObject, incoming: ssl.MemoryBIO) -> None:
        self._tls = tls
        self._incoming = incoming
        self._arrived = NOTHING
        """Bytes that were read and are not with the library yet, from `_taken` on."""
        self._taken = 0
        self.reads_left = 0
        """Of this turn: so many records may still be read."""
        self.saw_end = False
        """The peer has announced that it sends no more."""
        self._knows_records = False
        """The next byte to be fed is the first of a record, or goes on with one."""
        self._rest_of_record = 0
        """So many bytes belong to a record whose beginning the library has."""
        self._dataless = 0
        """Records that the library has whole, since the last one that had data."""

    def arrived(self, nbytes: int) -> None:
        """Take bytes that were read into ENCRYPTED_VIEW."""
        if self._taken == len(self._arrived):
            self._arrived = ENCRYPTED_VIEW[:nbytes]
        else:
            left = b"".join((self._arrived[self._taken :], ENCRYPTED_VIEW[:nbytes]))
            self._arrived = memoryview(left)
        self._taken = 0

    def keep_rest(self) -> int:
        """Copy what is not with the library yet: the buffer is everybody's in the next turn. Returns what is held."""
        left_bytes = len(self._arrived) - self._taken
        self._arrived = memoryview(bytes(self._arrived[self._taken :])) if left_bytes else NOTHING
        self._taken = 0
        return left_bytes + self._incoming.pending

    def clear(self) -> None:
        """The socket is gone."""
        self._arrived, self._taken = NOTHING, 0

    @property
    def holds_some(self) -> bool:
        return self._taken < len(self._arrived) or self._incoming.pending > 0 or self._tls.pending() > 0

    def handshake_over(self) -> None:
        """Feed by records from now on; the library stands at the end of one.

        A handshake ends by itself. Behind it one call walks over all records without data (KeyUpdates, tickets) that
        the library was given, before it returns.
        """
        behind = self._incoming.read()
        if behind:
            self._arrived = memoryview(b"".join((behind, self._arrived[self._taken :])))
            self._taken = 0
        self._knows_records = True

    def feed(self) -> bool:
        """Give the library more of what has arrived; False: it has all of it, or all but the beginning of a head.

        After the handshake these are large records, or one that is not large: a call that returns no data then costs no
        more than they do.
        """
        start, end = self._taken, len(self._arrived)
        if start == end:
            return False
        stop = min(start + SLICE_BYTES, end)
        if self._knows_records:
            stop = self._end_of_records(start, stop)
            if stop == start:
                return False
        self._taken = stop
        self._incoming.write(self._arrived[start:stop])
        return True

    def _end_of_records(self, start: int, stop: int) -> int:
        """Return where to stop, at `stop` at the latest; counts the records that the library has whole by then."""
        arrived = self._arrived
        at = start + self._rest_of_record
        is_large = True
        whole = 1 if at > start else 0
        while is_large and at + RECORD_HEAD_BYTES <= stop:
            record_bytes = RECORD_HEAD_BYTES + (arrived[at + 3] << 8 | arrived[at + 4])
            is_large = record_bytes >= LARGE_RECORD_BYTES
            if not is_large and at > start:
                break
            at += record_bytes
            whole += 1
        if at > stop:
            self._rest_of_record = at - stop
            self._dataless += whole - 1
            return stop
        self._rest_of_record = 0
        self._dataless += whole
        return at

    def _goes_on(self) -> bool:
        """Give the library more after a read without data; False: there is no more. Raises ssl.SSLError."""
        if self._dataless:
            if self._dataless > MOST_DATALESS_RECORDS:
                error = ssl.SSLError(
                    ssl.SSL_ERROR_SSL, f"more than {MOST_DATALESS_RECORDS} records without data"
                )
                error.reason = "TOO_MANY_RECORDS_WITHOUT_DATA"  # as the library's own errors have one
                raise error
            self.reads_left = max(0, self.reads_left - READS_PER_DATALESS)
        return self.feed()

    def _has_more(self) -> bool:
        """Return whether the library has bytes that it has not been asked for; gives it some where it has none."""
        return self._incoming.pending > 0 or self._tls.pending() > 0 or self.feed()

    def read(self) -> bytes:
        """Return what can be decrypted of what has arrived, as far as a small read goes. Raises ssl.SSLError."""
        tls = self._tls
        pieces: list[bytes] = []
        size = 0
        # One record beyond the size of a small read, so that the reader knows that reads are large.
        while size <= SMALL_READ_BYTES and self.reads_left and self._has_more():
            self.reads_left -= 1
            try:
                piece = tls.read(min(MOST_RECORD_BYTES, self._incoming.pending + tls.pending()))
            except ssl.SSLWantReadError:
                if not self._goes_on():
                    break
                continue
            if not piece:
                self.saw_end = True
                break
            self._dataless = 0
            pieces.append(piece)
            size += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_into(self, view: memoryview) -> int:
        """Decrypt into the reader's buffer what there is room for. Raises ssl.SSLError."""
        size, filled = len(view), 0
        while filled < size and self.reads_left and self._has_more():
            self.reads_left -= 1
            try:
                # The buffer protocol is not in the types of the standard library.
                count = cast(Any, self._tls).read(size - filled, view[filled:])
            except ssl.SSLWantReadError:
                if not self._goes_on():
                    break
                continue
            if not count:
                self.saw_end = True
                break
            self._dataless = 0
            filled += count
        return filled
