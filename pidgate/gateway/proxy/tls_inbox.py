"""Encrypted bytes of one socket on their way to the TLS library, and the decrypted output.

All sockets of a process are read into one shared buffer, as in receive_buffer.py. Bytes not decrypted at
once, because the reader is paused or the turn is over, are at most one read. They are copied, and the
transport counts them.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, cast

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.reading import SMALL_READ_BYTES

ENCRYPTED: Final = bytearray(READ_BUFFER_BYTES)
"""Shared read buffer for encrypted bytes, the counterpart of READ_BUFFER."""
ENCRYPTED_VIEW: Final = memoryview(ENCRYPTED)
SLICE_BYTES: Final = 32 * 1024
"""Most bytes passed to or taken from the library at once: its buffers grow and never shrink."""
MOST_RECORD_BYTES: Final = 16 * 1024
RECORD_HEAD_BYTES: Final = 5
LARGE_RECORD_BYTES: Final = 1024
"""Reads of at least this size bound the records per call: 256, or 5 ms if each is a padded KeyUpdate."""
MOST_READS_PER_TURN: Final = 1024
"""Records may hold one byte each, and each takes about 2 us."""
READS_PER_DATALESS: Final = 10
"""Cost of a record without data, in reads: a KeyUpdate derives keys and takes 20 us."""
MOST_DATALESS_RECORDS: Final = 32
"""In a row; OpenSSL's own bound for empty records. A server sends a few tickets, and keys change every few
million records."""
NOTHING: Final = memoryview(b"")


class TlsInbox:
    """Holds bytes read into ENCRYPTED_VIEW and returns them decrypted."""

    def __init__(self, tls: ssl.SSLObject, incoming: ssl.MemoryBIO) -> None:
        self._tls = tls
        self._incoming = incoming
        self._arrived = NOTHING
        """Bytes read but not passed to the library yet, from `_taken` on."""
        self._taken = 0
        self.reads_left = 0
        """Records that may still be read in this turn."""
        self.saw_end = False
        """The peer has announced the end of its data."""
        self._knows_records = False
        """Record boundaries are known at the next byte to be fed."""
        self._rest_of_record = 0
        """Bytes still missing of a record whose beginning the library has."""
        self._dataless = 0
        """Whole records passed to the library since the last one with data."""
        self._is_empty = False
        """The library is between two records and has nothing unread, and nothing waits for it here."""

    def arrived(self, nbytes: int) -> None:
        """Take bytes that were read into ENCRYPTED_VIEW."""
        if self._taken == len(self._arrived):
            self._arrived = ENCRYPTED_VIEW[:nbytes]
        else:
            left = b"".join((self._arrived[self._taken :], ENCRYPTED_VIEW[:nbytes]))
            self._arrived = memoryview(left)
        self._taken = 0

    def keep_rest(self) -> int:
        """Copy the bytes not passed to the library: the buffer is reused in the next turn.

        Returns the bytes held.
        """
        left_bytes = len(self._arrived) - self._taken
        self._is_empty = self._knows_records and not (
            left_bytes or self._rest_of_record or self._incoming.pending or self._tls.pending()
        )
        self._arrived = memoryview(bytes(self._arrived[self._taken :])) if left_bytes else NOTHING
        self._taken = 0
        return left_bytes + self._incoming.pending

    def clear(self) -> None:
        """Drop all bytes: the socket is closed."""
        self._arrived, self._taken = NOTHING, 0

    @property
    def holds_some(self) -> bool:
        return self._taken < len(self._arrived) or self._incoming.pending > 0 or self._tls.pending() > 0

    def handshake_over(self) -> None:
        """Feed whole records from now on; the library is at a record boundary.

        During the handshake this is not needed, because it ends by itself. Afterwards one call of the library
        processes all records without data (KeyUpdates, tickets) that it was given before it returns.
        """
        behind = self._incoming.read()
        if behind:
            self._arrived = memoryview(b"".join((behind, self._arrived[self._taken :])))
            self._taken = 0
        self._knows_records = True

    def feed(self) -> bool:
        """Pass more arrived bytes to the library.

        False: it has all, or all but the beginning of a record header. After the handshake it passes several
        large records or one small one, which bounds the cost of a call that returns no data.
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
        """Return where to stop, at most `stop`; counts the records complete in the library by then."""
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
        """Feed the library after a read without data. False: there is no more. Raises ssl.SSLError."""
        if self._dataless:
            if self._dataless > MOST_DATALESS_RECORDS:
                error = ssl.SSLError(
                    ssl.SSL_ERROR_SSL, f"more than {MOST_DATALESS_RECORDS} records without data"
                )
                error.reason = "TOO_MANY_RECORDS_WITHOUT_DATA"  # named like the library's own errors
                raise error
            self.reads_left = max(0, self.reads_left - READS_PER_DATALESS)
        return self.feed()

    def _has_more(self) -> bool:
        """Return whether the library has unread bytes; feeds it if it has none."""
        return self._incoming.pending > 0 or self._tls.pending() > 0 or self.feed()

    def is_record(self, nbytes: int) -> bool:
        """Return whether so many bytes in ENCRYPTED_VIEW are one record, and the first after one with data."""
        return (
            self._is_empty
            and not self._dataless
            and nbytes >= RECORD_HEAD_BYTES
            and nbytes == RECORD_HEAD_BYTES + (ENCRYPTED[3] << 8 | ENCRYPTED[4])
        )

    def read_record(self, nbytes: int) -> bytes:
        """Decrypt such a record. Empty: it has no data. Raises ssl.SSLError."""
        self._incoming.write(ENCRYPTED_VIEW[:nbytes])
        try:
            data = self._tls.read(nbytes)
        except ssl.SSLWantReadError:
            self._dataless = 1
            return b""
        self.saw_end = not data
        return data

    def read(self) -> bytes:
        """Decrypt up to a small read's worth of arrived bytes. Raises ssl.SSLError."""
        tls = self._tls
        pieces: list[bytes] = []
        size = 0
        # One record beyond a small read, so that the reader notices large reads.
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
        """Decrypt arrived bytes into the reader's buffer, as far as there is room. Raises ssl.SSLError."""
        size, filled = len(view), 0
        while filled < size and self.reads_left and self._has_more():
            self.reads_left -= 1
            try:
                # The standard library's types do not declare the buffer protocol here.
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
