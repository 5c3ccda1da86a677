"""Byte windows of all workers of a gateway, in a file that each maps into memory; must not know rates.

Each worker writes only its own column: for each bucket a ring of the samples of its window (quota/byte_window.py), as
(last record, begin, bytes). A reader sums the columns of the others. So counting takes no lock, and with one worker the
windows are Kafka's to the millisecond. Only finding a bucket's place for the first time takes a flock, which ends with
its process.

Words are aligned and 64 bits wide: a reader sees the old or the new one, never a mixture. A sample's `last record` is
written last and read first, so one that is half written, or whose writer died in it, is not counted.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from pidgate.gateway.process import mapped_files
from pidgate.quota.byte_quota import MAX_CLIENT_BUCKETS
from pidgate.quota.byte_rates import BucketName, Kind
from pidgate.quota.byte_window import Sample

REREAD_MS: Final = 10
"""Longest age of what was read of the other columns: a thousandth of the window, and reading costs microseconds."""

MAX_FILE_BYTES: Final = 32 * 2**20
"""Room for all places with five workers; with more of them there are fewer places."""

FEWEST_SAMPLES: Final = 11
"""Kafka's default; there is room for it when fewer are set, so that a reload may go back to it."""

_MAGIC: Final = int.from_bytes(b"pidcells", "big")
_HEAD: Final = Struct("<4q")
"""Magic, workers, places, cells of a ring."""
_HEAD_BYTES: Final = 64
_DIGEST_BYTES: Final = 16
_NOBODY: Final = bytes(_DIGEST_BYTES)
_WORD: Final = 8
_CELL: Final = 3
"""Words of a sample: last record, begin, bytes."""
_NEVER: Final = -(1 << 62)
"""The `last record` of a cell that holds nothing."""
_TRIED: Final = 256
"""Places that are tried, at most, to find one that is not used any more."""


class NotTheFile(Exception):
    """The file was not made by `create`, or not for this worker."""


def cells_path(socket_path: Path) -> Path:
    """Return the path of the file for a state owner that listens at `socket_path`."""
    return socket_path.with_name("byte-cells")


def create(path: Path, workers: int, samples: int, places: int = MAX_CLIENT_BUCKETS) -> None:
    """Make the file for workers 1 to `workers`. Raises OSError, also when it exists."""
    ring = max(samples, FEWEST_SAMPLES) + 2
    place_bytes = _DIGEST_BYTES + _WORD * workers * (1 + ring * _CELL)
    places = max(1, min(places, MAX_FILE_BYTES // place_bytes))
    head = _HEAD.pack(_MAGIC, workers, places, ring)
    mapped_files.make(path, _HEAD_BYTES + places * place_bytes, head)


class ByteCells:
    """The file as worker `number` (from 1) uses it."""

    def __init__(self, path: Path, number: int) -> None:
        """Map the file. Raises OSError, NotTheFile."""
        # Of its own: a flock belongs to an open file, and a descriptor that was inherited would be the same one.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._memory = mmap(self._descriptor, 0)
        head: tuple[int, ...] = _HEAD.unpack_from(self._memory, 0)
        magic, self._workers, self._places, self._ring = head[:4]
        if magic != _MAGIC or not 1 <= number <= self._workers:
            self._memory.close()
            os.close(self._descriptor)
            raise NotTheFile(f"{path} holds no cells for worker {number}")
        self._column = number - 1
        self._column_words = self._ring * _CELL
        self._directory_end = _HEAD_BYTES + self._places * _DIGEST_BYTES
        self._first_word = self._directory_end // _WORD
        self._view = memoryview(self._memory)
        self.words = self._view.cast("q")
        self._hand = 0
        self._drop_claims()

    def close(self) -> None:
        """Unmap the file; no share may be used any more."""
        self.words.release()
        self._view.release()
        self._memory.close()
        os.close(self._descriptor)

    def share(
        self, kind: Kind, bucket: BucketName, samples: int, sample_ms: int, now_ms: int
    ) -> Column | None:
        """See pidgate.quota.byte_bucket.Cells; None also when the file was made for fewer samples."""
        if samples + 2 > self._ring:
            return None
        digest = _digest(kind, bucket)
        with self._locked():
            place = self._find(digest)
            if place is None:
                place = self._free_place(now_ms, samples * sample_ms)
                if place is None:
                    return None
                self._settle(place, digest)
            self.words[self._claims(place) + self._column] = 1
        return Column(self, place, samples, sample_ms, now_ms)

    def rings_of(self, place: int) -> tuple[int, int, int, int]:
        """Return the first word of a place's rings, this worker's column, all workers, and a ring's cells."""
        return self._claims(place) + self._workers, self._column, self._workers, self._ring

    def release(self, place: int) -> None:
        """Give up this worker's claim of the place."""
        self.words[self._claims(place) + self._column] = 0

    # ---- places: under the lock --------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _find(self, digest: bytes) -> int | None:
        at = _HEAD_BYTES
        while True:
            at = self._memory.find(digest, at, self._directory_end)
            if at < 0:
                return None
            place, odd = divmod(at - _HEAD_BYTES, _DIGEST_BYTES)
            if not odd:
                return place
            at += 1

    def _free_place(self, now_ms: int, expire_ms: int) -> int | None:
        place = self._find(_NOBODY)
        if place is not None:
            return place
        for _ in range(min(_TRIED, self._places)):
            place = self._hand
            self._hand = (self._hand + 1) % self._places
            if self._is_free(place, now_ms, expire_ms):
                return place
        return None

    def _is_free(self, place: int, now_ms: int, expire_ms: int) -> bool:
        """Return whether no worker claims it, and what one that died has left there has expired."""
        claims = self._claims(place)
        cells = claims + self._workers
        if any(self.words[claims:cells]):
            return False
        last = self.words[cells : cells + self._workers * self._column_words : _CELL]
        return all(now_ms - last_ms >= expire_ms for last_ms in last)

    def _settle(self, place: int, digest: bytes) -> None:
        """Clear and name the place, which nobody reads meanwhile; the digest last: a death before it leaves it free."""
        self._name(place, _NOBODY)
        claims = self._claims(place)
        for word in range(claims, claims + self._workers):
            self.words[word] = 0
        first = claims + self._workers
        for word in range(first, first + self._workers * self._column_words, _CELL):
            self.words[word] = _NEVER
        self._name(place, digest)

    def _name(self, place: int, digest: bytes) -> None:
        at = _HEAD_BYTES + place * _DIGEST_BYTES
        self._memory[at : at + _DIGEST_BYTES] = digest

    def _claims(self, place: int) -> int:
        """Return the index of a place's first word: one for each worker, 1 while it has a bucket there."""
        return self._first_word + place * self._workers * (1 + self._column_words)

    def _drop_claims(self) -> None:
        """Drop the claims of this worker's predecessor; what that had counted stays."""
        with self._locked():
            for place in range(self._places):
                at = self._claims(place) + self._column
                if self.words[at]:
                    self.words[at] = 0


class Column:
    """One bucket as one worker has it: writes its own ring, reads those of the others (byte_bucket.Share)."""

    __slots__ = (
        "_at", "_cells", "_end", "_expire_ms", "_first", "_others", "_own", "_past", "_place", "_read_ms",
        "_ring_words", "_sample_ms", "_start_ms", "_words"
    )  # fmt: skip

    def __init__(self, cells: ByteCells, place: int, samples: int, sample_ms: int, now_ms: int) -> None:
        first, column, workers, ring = cells.rings_of(place)
        self._cells = cells
        self._words = cells.words
        self._place = place
        self._ring_words = ring * _CELL
        self._first = first
        self._end = first + workers * self._ring_words
        self._own = first + column * self._ring_words
        self._sample_ms = sample_ms
        self._expire_ms = samples * sample_ms
        self._others: tuple[int, int | None] = (0, None)
        self._read_ms = _NEVER
        self._at = self._own
        self._start_ms = _NEVER
        self._past = self._recover(now_ms)

    def past(self) -> list[Sample]:
        return self._past

    def write(self, start_ms: int, last_ms: int, size_bytes: int) -> None:
        words, at = self._words, self._at
        if start_ms != self._start_ms:
            at += _CELL
            if at == self._own + self._ring_words:
                at = self._own
            self._at = at
            self._start_ms = start_ms
            words[at] = _NEVER
            words[at + 1] = start_ms
        words[at + 2] = size_bytes
        words[at] = last_ms

    def others(self, now_ms: int) -> tuple[int, int | None]:
        if now_ms - self._read_ms >= REREAD_MS:
            self._read_ms = now_ms
            self._others = self._read(now_ms)
        return self._others

    def release(self) -> None:
        self._cells.release(self._place)

    def _read(self, now_ms: int) -> tuple[int, int | None]:
        words = self._words
        total, oldest_ms = 0, None
        for first, end in ((self._first, self._own), (self._own + self._ring_words, self._end)):
            block = words[first:end].tolist()
            for at in range(0, len(block), _CELL):
                last_ms = block[at]
                if now_ms - last_ms >= self._expire_ms:
                    continue
                total += block[at + 2]
                # A sample is no longer than that: what begins earlier was read before it was written whole.
                start_ms = max(block[at + 1], last_ms - self._sample_ms)
                if oldest_ms is None or start_ms < oldest_ms:
                    oldest_ms = start_ms
        return total, oldest_ms

    def _recover(self, now_ms: int) -> list[Sample]:
        """Return what this column's worker had counted before, and go on behind the newest of it."""
        block = self._words[self._own : self._own + self._ring_words].tolist()
        found = sorted(
            (block[at + 1], block[at], block[at + 2], self._own + at)
            for at in range(0, len(block), _CELL)
            if 0 <= now_ms - block[at] < self._expire_ms and 0 <= block[at] - block[at + 1] < self._sample_ms
        )
        if found:
            self._start_ms, _, _, self._at = found[-1]
        return [(start_ms, last_ms, size) for start_ms, last_ms, size, _ in found]


def _digest(kind: Kind, bucket: BucketName) -> bytes:
    """Return names of any length in a fixed size; lengths keep ("a", "bc") and ("ab", "c") apart."""
    parts = [b"-" if name is None else b"+" + name.encode("utf-8", "surrogatepass") for name in bucket]
    text = b"".join(len(part).to_bytes(8, "big") + part for part in (kind.encode(), *parts))
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()
