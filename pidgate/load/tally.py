"""Counts of the clients of one kind, and histograms of their latency.

A batch that was due but is unacknowledged at the end of the run counts with its waiting time so far: omitting
it would hide the longest stalls. This module knows no connection; times are seconds of any one clock.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Final

from pidgate.protocol.errors import ErrorCode

_LONGEST_US: Final = 3_600_000_000
_DIGITS: Final = 3  # within 0.1 %


_HALF_BITS: Final = 10
"""2 ** 10 slots for each doubling: three decimal digits. Shorter times have twice as many, of 1 us each."""
_COOKIE: Final = 0x1C849313  # HdrHistogram V2, counts of variable length
_COMPRESSED_COOKIE: Final = 0x1C849314


class Latency:
    """A histogram of times from 1 us to an hour, within 0.1 %.

    Its slots are those of HdrHistogram, whose package has binaries for one architecture only.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, seconds: float) -> None:
        self._counts[_slot(min(max(round(seconds * 1_000_000), 1), _LONGEST_US))] += 1

    def add(self, other: Latency) -> None:
        """Add all measurements of another histogram."""
        self._counts.update(other._counts)

    @property
    def count(self) -> int:
        return self._counts.total()

    def percentile_ms(self, percent: float) -> float | None:
        """Return the latency in ms at this percentile. None without measurements."""
        wanted = max(int(percent * self.count / 100 + 0.5), 1)
        for slot in sorted(self._counts):
            wanted -= self._counts[slot]
            if wanted <= 0:
                return _longest_us(slot) / 1_000
        return self.max_ms

    @property
    def max_ms(self) -> float | None:
        return _longest_us(max(self._counts)) / 1_000 if self._counts else None

    def encoded(self) -> str:
        """Return it in the format of HdrHistogram's tools: V2, compressed, base64; values in microseconds."""
        counts = bytearray()
        last = -1
        for slot in sorted(self._counts):
            if empty := slot - last - 1:
                counts += _signed(-empty if empty > 1 else 0)
            counts += _signed(self._counts[slot])
            last = slot
        header = struct.pack(">iiiiqqd", _COOKIE, len(counts), 0, _DIGITS, 1, _LONGEST_US, 1.0)
        compressed = zlib.compress(header + counts)
        outer = struct.pack(">ii", _COMPRESSED_COOKIE, len(compressed))
        return base64.b64encode(outer + compressed).decode()


def _slot(value: int) -> int:
    """Return the slot of a time in microseconds."""
    doublings = (value | (2 << _HALF_BITS) - 1).bit_length() - _HALF_BITS - 1
    return (doublings << _HALF_BITS) + (value >> doublings)


def _longest_us(slot: int) -> int:
    """Return the longest time that belongs to a slot."""
    doublings = max((slot >> _HALF_BITS) - 1, 0)
    return (slot - (doublings << _HALF_BITS) + 1 << doublings) - 1


def _signed(value: int) -> bytes:
    """Return a number as HdrHistogram writes it: zigzag, seven bits a byte, the lowest first."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    written = bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    written.append(rest)
    return bytes(written)


@dataclass(slots=True)
class Tally:
    """Counts of one kind, in batches unless stated otherwise."""

    due: int = 0
    requests: int = 0
    """Produce requests sent, each try counted."""
    resent: int = 0
    """Of these: tries after the first one."""
    acknowledged: int = 0
    records: int = 0
    """Acknowledged records."""
    bytes: int = 0
    """Acknowledged bytes of values."""
    refused: Counter[int] = field(default_factory=Counter)
    """Answers with an error, by Kafka's error code."""
    refused_with_throttle: int = 0
    """Answers NOT_ENOUGH_REPLICAS with a throttle time: a quota of producer ids."""
    ids_refused: Counter[int] = field(default_factory=Counter)
    """InitProducerId answers with an error, by code."""
    lost: int = 0
    """Given up: never acknowledged."""
    possibly_doubled: int = 0
    """Sent again under another producer id or epoch although the first try may have arrived."""
    unfinished: int = 0
    """Neither acknowledged nor given up at the end."""
    ids: int = 0
    """Producer ids obtained, an id with another epoch counted once."""
    connections: int = 0
    connection_errors: int = 0
    throttle_s: float = 0.0
    """Sum of the throttle times of answers."""
    latency: Latency = field(default_factory=Latency)
    """From a batch's due time to its acknowledgement."""
    sent_late: Latency = field(default_factory=Latency)
    """From a batch's due time to its first try."""
    from_s: float = float("-inf")
    """Batches due earlier are not counted."""

    def restart(self, from_s: float) -> None:
        """Reset all counts, and count work due from now on."""
        fresh = Tally(from_s=from_s)
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))

    def count_due(self, due_s: float) -> None:
        self.due += due_s >= self.from_s

    def count_first_send(self, due_s: float, now_s: float) -> None:
        if due_s >= self.from_s:
            self.sent_late.record(now_s - due_s)

    def count_acknowledged(self, due_s: float, arrived_s: float, records: int, value_bytes: int) -> None:
        if due_s >= self.from_s:
            self.acknowledged += 1
            self.records += records
            self.bytes += value_bytes
            self.latency.record(arrived_s - due_s)

    def count_refusal(self, error_code: int, *, has_throttle: bool) -> None:
        self.refused[error_code] += 1
        self.refused_with_throttle += has_throttle and error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    def count_throttle(self, throttle_time_ms: int) -> None:
        """Count the throttle time of an answer of any API."""
        self.throttle_s += throttle_time_ms / 1_000

    def count_lost(self, due_s: float) -> None:
        self.lost += due_s >= self.from_s

    def count_unfinished(self, due_s: float, end_s: float) -> None:
        """Count a batch that is pending at the end of the run."""
        if due_s >= self.from_s:
            self.unfinished += 1
            self.latency.record(end_s - due_s)

    def add(self, other: Tally) -> None:
        """Add the counts of another kind."""
        for one in fields(self)[:-1]:
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Latency):
                mine.add(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, one.name, mine + theirs)
