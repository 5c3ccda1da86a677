"""What a lane may pass of one connection, by the Python that its core (pidgate/gateway/lane/core.c) repeats."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.fetch import FETCH, EndpointsWalker
from pidgate.protocol.produce import FIRST_TOPIC_ID, PRODUCE
from pidgate.protocol.produce_answers import is_plain_success
from pidgate.protocol.repeated_produce import BEGINNING_BYTES, RepeatedProduce
from pidgate.protocol.work import MOST_SEARCHED_BYTES
from tests.support.native_core import (
    MOST_IN_FLIGHT,
    MOST_KEPT_ANSWER_BYTES,
    MOST_KEPT_BYTES,
    MOST_UNIT_BYTES,
    Granted,
    InFlight,
    Next,
    Passing,
)

_HEAD_BYTES: Final = 8
_WALKED: Final = range(16, 19)


class _Translated(Exception):
    """An address would be translated."""


def _translate(node_id: int, host: str, port: int) -> tuple[str, int]:
    raise _Translated


def tail_at(frame: bytes, version: int) -> int | None:
    """Return where the last tags of a Fetch answer begin, its length if there are none; None if it is malformed
    before them.
    """
    walker = EndpointsWalker(FETCH, version, len(frame), _translate)
    with suppress(KafkaProtocolError, _Translated):
        walker.feed_chunk(memoryview(frame))
    tail = bytes(walker._tail)
    if walker._unit is not None or not tail:
        return None
    return len(frame) - (0 if tail == b"\0" else len(tail))


class Reference:
    """The Python side of the comparison: for the bytes that the core gets, what passes and what is counted."""

    def __init__(self, granted: Granted, repeated: RepeatedProduce) -> None:
        """`repeated` has walked a request with the granted beginning."""
        self.granted = granted
        self.repeated = repeated
        self.in_flight: list[InFlight] = []
        self.requests_by_api: Counter[int] = Counter()
        self.produce_bytes = 0
        self.batches = 0
        self.records = 0
        self.last_produce_ms = 0
        self.written: set[tuple[bytes, int]] = set()
        self.leased_bytes = self.granted.leased_bytes
        self.request_left = 0
        self.answer_left = 0
        self.waits_too_long = False
        """An incomplete request is longer than a lane keeps: it may be given back, or not yet."""
        self._request_bytes = 0
        self._passes_until = 0
        """Of the answer under way, the bytes left when its tags begin, or when it is malformed."""
        self._then = Next.MORE
        self._is_walked = False

    # ---- requests --------------------------------------------------------------------------------------

    def look_at_requests(self, data: bytes, now_ms: int) -> tuple[int, Next]:
        pos = 0
        self.waits_too_long = False
        while True:
            if self.request_left:
                step = min(self.request_left, len(data) - pos)
                self.request_left -= step
                pos += step
                if self.request_left:
                    return pos, Next.MORE
                self._produced(now_ms)
                continue
            rest = data[pos:]
            size = int.from_bytes(rest[:4], "big", signed=True)
            if len(rest) >= 4 and size < _HEAD_BYTES:
                return pos, Next.TO_PYTHON
            if len(rest) < 4 + _HEAD_BYTES:
                return pos, Next.MORE
            if len(self.in_flight) == MOST_IN_FLIGHT:
                return pos, Next.TO_PYTHON
            if rest[4:6] == b"\0\0":
                following = self._produce(rest, size, now_ms)
            else:
                following = self._other(rest, size)
                if following is None:
                    pos += 4 + size
            if following is not None:
                return pos, following

    def _produce(self, rest: bytes, size: int, now_ms: int) -> Next | None:
        granted, frame = self.granted, rest[4 : 4 + size]
        if now_ms >= granted.until_ms or size > min(granted.most_streamed_bytes, self.leased_bytes):
            return Next.TO_PYTHON
        if len(frame) == size:
            passes = self.repeated.recognise_request(frame, 0, size)
        else:
            passes = self.repeated.recognise_beginning(frame[:BEGINNING_BYTES], size)
        if passes and self._is_granted():
            self.request_left, self._request_bytes = 4 + size, size
            self.leased_bytes -= size
            return None
        if len(frame) == size or passes:
            return Next.TO_PYTHON
        self.waits_too_long = 4 + size > MOST_KEPT_BYTES
        return Next.TO_PYTHON if self.waits_too_long and len(frame) >= BEGINNING_BYTES else Next.MORE

    def _places(self) -> list[tuple[bytes, int]]:
        repeated = self.repeated
        prefix = 1 if repeated.version >= FIRST_TOPIC_ID else 0
        return [
            (topic[prefix:], partition)
            for topic, partitions in zip(repeated.topics, repeated.partitions, strict=True)
            for partition in partitions
        ]

    def _is_granted(self) -> bool:
        repeated, granted = self.repeated, self.granted
        written_id = repeated.producer_id.to_bytes(8, "big") + repeated.epoch.to_bytes(2, "big", signed=True)
        return written_id == granted.id and all(
            partition in granted.topics.get(topic, ()) for topic, partition in self._places()
        )

    def _produced(self, now_ms: int) -> None:
        repeated = self.repeated
        self.requests_by_api[PRODUCE] += 1
        self.produce_bytes += self._request_bytes
        self.batches += repeated.batches
        self.records += repeated.record_count
        self.last_produce_ms = now_ms
        self.written.update(self._places())
        if repeated.acks:
            correlation_id = repeated.correlation_id & 0xFFFFFFFF
            self.in_flight.append(InFlight(correlation_id, PRODUCE, repeated.version, Passing.PLAIN_SUCCESS))

    def _other(self, rest: bytes, size: int) -> Next | None:
        granted = self.granted
        api_key, version = int.from_bytes(rest[4:6], "big"), int.from_bytes(rest[6:8], "big")
        passing = granted.apis.get((api_key, version), Passing.ASK)
        if passing is Passing.ASK:
            return Next.TO_PYTHON
        frame = rest[4 : 4 + size]
        if len(frame) < size:
            return Next.MORE if 4 + size <= MOST_KEPT_BYTES else Next.TO_PYTHON
        if api_key in granted.guarded and (
            size > MOST_SEARCHED_BYTES or any(needle in frame for needle in granted.needles)
        ):
            return Next.TO_PYTHON
        self.requests_by_api[api_key] += 1
        self.in_flight.append(InFlight(int.from_bytes(frame[4:8], "big"), api_key, version, passing))
        return None

    # ---- answers ---------------------------------------------------------------------------------------

    def hold_back(self, nbytes: int) -> bool:
        """Take back the beginning of a cut unit of a Fetch answer. Returns whether one may be held back there."""
        if not self._is_walked or not self.answer_left or not 0 < nbytes < MOST_UNIT_BYTES:
            return False
        self.answer_left += nbytes
        return True

    def look_at_answers(self, data: bytes, future: bytes) -> tuple[int, Next]:
        """`future`: `data` with all that the broker sends after it."""
        pos = 0
        while True:
            if self.answer_left:
                step = min(self.answer_left - self._passes_until, len(data) - pos)
                self.answer_left -= step
                pos += step
                if self.answer_left > self._passes_until:
                    return pos, Next.MORE
                if self._then is not Next.MORE:
                    # A tail of one byte may be that of no tags: it has to be seen first.
                    is_unseen = self._passes_until == 1 and pos == len(data)
                    return pos, Next.MORE if is_unseen else self._then
                del self.in_flight[0]
                continue
            rest = data[pos:]
            if len(rest) < 8:
                return pos, Next.MORE
            size = int.from_bytes(rest[:4], "big", signed=True)
            request = self.in_flight[0] if self.in_flight else None
            if size < 4 or request is None or request.correlation_id != int.from_bytes(rest[4:8], "big"):
                return pos, Next.TO_PYTHON
            if request.passing is Passing.PLAIN_SUCCESS:
                if len(rest) < 4 + size:
                    return pos, Next.MORE if 4 + size <= MOST_KEPT_ANSWER_BYTES else Next.TO_PYTHON
                if not is_plain_success(rest, 4, 4 + size, request.version):
                    return pos, Next.TO_PYTHON
                del self.in_flight[0]
                pos += 4 + size
                continue
            self.answer_left, self._passes_until, self._then = 4 + size, 0, Next.MORE
            self._is_walked = request.passing is Passing.ENDS_IN_TAGS
            if self._is_walked:
                if request.api_key != FETCH or request.version not in _WALKED:
                    self.answer_left = 0
                    return pos, Next.TO_PYTHON
                frame = future[pos + 4 : pos + 4 + size]
                assert len(frame) == size, "Fetch answers are given whole"
                at = tail_at(frame, request.version)
                if at is None:
                    self._then = Next.BROKEN
                elif at < size:
                    self._passes_until, self._then = size - at, Next.AT_TAGS
