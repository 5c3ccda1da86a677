"""Random connections through the core of the lane, held against Python: what passes, and what is counted.

By itself, as under a sanitizer: python -m tests.support.core_fuzz LIBRARY SECONDS SEED.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

from pidgate.protocol.frames import uvarint
from pidgate.protocol.headers import peek_request
from pidgate.protocol.repeated_produce import RepeatedProduce
from tests.support.core_reference import Reference
from tests.support.native_core import Granted, InFlight, NativeCore, Next, Passing, load

FETCH, METADATA, HEARTBEAT, SHARE_FETCH = 1, 3, 12, 78
APIS: Final = {
    (FETCH, 12): Passing.UNREAD,
    (FETCH, 16): Passing.ENDS_IN_TAGS,
    (FETCH, 18): Passing.ENDS_IN_TAGS,
    (HEARTBEAT, 4): Passing.UNREAD,
    (SHARE_FETCH, 1): Passing.ENDS_IN_TAGS,  # not walked: its answer goes to Python
}
OFTEN: Final = ((FETCH, 12), (FETCH, 16), (FETCH, 18), (HEARTBEAT, 4))
SELDOM: Final = (
    (SHARE_FETCH, 1),
    (METADATA, 12),
    (HEARTBEAT, 5),
    (127, 0),
    (128, 4),
    (300, 1),
    (FETCH, 32),
    (0x8000, 0),
)
NEEDLE: Final = b"pidgate-events"
UNTIL_MS: Final = 1_000
ANY_BYTES: Final = (1 << 64) - 1
ODD_BYTES: Final = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)


def fuzz(native: ctypes.CDLL, dice: Random, connections: int = 1) -> Counter[str]:
    """Run random connections. Returns how often what passed. Raises AssertionError where C and Python differ."""
    seen: Counter[str] = Counter()
    for _ in range(connections):
        connection = Connection(native, dice)
        try:
            connection.run(seen)
            connection.compare_tables()
        finally:
            connection.core.close()
    return seen


class Connection:
    """One connection with a grant, its core, and the reference."""

    def __init__(self, native: ctypes.CDLL, dice: Random) -> None:
        self.dice = dice
        self.version = version = dice.randrange(9, 14)
        self.acks = dice.choice((-1, -1, 1, 0))
        self.client_id = dice.choice((None, b"", b"client", b"c" * 249))
        self.transactional_id = dice.choice((None, None, b"payments"))
        self.id = dice.randrange(1 << 40).to_bytes(8, "big") + dice.randrange(3).to_bytes(2, "big")
        names = [dice.randbytes(16) if version >= 13 else b"topic-%d" % n for n in range(4)]
        self.topics = {name: set(dice.sample(range(30), 20)) | {63, 64, 1023} for name in names[:3]}
        self.other_topic = names[3]
        repeated = RepeatedProduce()
        first = self._frame([(names[0], [self._partition(0, may_differ=False)])])[:-2] + bytes(2)
        repeated.walk(first, peek_request(first, 0, len(first)))
        assert repeated.recognise_request(first, 0, len(first))
        granted = Granted(
            repeated._head,
            repeated._same,
            self.id,
            version,
            self.acks,
            self.transactional_id is not None,
            UNTIL_MS,
            dice.choice((100_000, 1 << 20)),
            self.topics,
            APIS,
            (FETCH, SHARE_FETCH),
            (b"another-topic", NEEDLE),
            dice.choice((ANY_BYTES, ANY_BYTES, 3_000, 100_000)),
        )
        self.core = NativeCore(native, granted)
        self.reference = Reference(granted, repeated)
        self.now_ms = 0

    def run(self, seen: Counter[str]) -> None:
        """Send requests and answer them, until something goes to Python."""
        for _ in range(self.dice.choice((1, 3, 20))):
            self.now_ms = self.dice.choice((0, 1, 500, 500, 999)) if self.dice.random() < 0.98 else UNTIL_MS
            if self.dice.random() < 0.98:
                requests = [self._request() for _ in range(self.dice.choice((1, 1, 3, 5, 30)))]
            else:  # more than may be in flight
                requests = [b"\0\0\0\x08\0\x0c\0\x04" + self.dice.randbytes(4) for _ in range(70)]
            if not self._send(requests, seen, is_request=True):
                return
            if not self._send(self._answers(), seen, is_request=False):
                return

    def _send(self, frames: list[bytes], seen: Counter[str], *, is_request: bool) -> bool:
        """Feed one side, cut anyhow. Returns False if something did not pass."""
        dice, core, reference = self.dice, self.core, self.reference
        stream = b"".join(frames)
        longest = dice.choice((1, 7, 60, 500, 300_000, 300_000)) if len(stream) < 5_000 else 100_000
        start = end = 0
        while end < len(stream):
            begin, end = end, min(len(stream), end + dice.randrange(1, longest + 1))
            state = core.state
            unread = state.request_left if is_request else state.answer_unread
            if start == begin and unread and dice.random() < 0.5:  # spliced past the core
                end = min(end, begin + unread)
                core.skip(end - begin, self.now_ms, is_request=is_request)
                passed, following = end - begin, Next.MORE
                seen["spliced"] += 1
            else:
                passed, following = core.look(stream[start:end], self.now_ms, is_request=is_request)
            if is_request:
                expected, then = reference.look_at_requests(stream[start:end], self.now_ms)
            else:
                expected, then = reference.look_at_answers(stream[start:end], stream[start:])
            if Next.BROKEN in (then, following):
                # The core may find it earlier than Python.
                assert (reference._then, following) == (Next.BROKEN, Next.BROKEN)
                seen["broken"] += 1
                return False
            if (
                passed < expected
                and following is then is Next.MORE
                and reference.hold_back(expected - passed)
            ):
                expected = passed
                seen["cut units"] += 1
            assert passed == expected, (
                f"{passed} bytes pass and not {expected}, then {following} and not {then}"
            )
            self._compare()
            start += passed
            if following is not then:
                self._given_back_early(stream, start, following, then, is_request=is_request)
            if following is not Next.MORE:
                seen[f"{following.name} {'request' if is_request else 'answer'}"] += 1
                return False
        assert start == len(stream) or following is Next.MORE
        seen["requests" if is_request else "answers"] += len(frames)
        return start == len(stream)

    def _given_back_early(
        self, stream: bytes, start: int, following: Next, then: Next, *, is_request: bool
    ) -> None:
        """Check that what went to Python before it was whole would not have passed as a whole either."""
        assert (following, then) == (Next.TO_PYTHON, Next.MORE), f"{following} and not {then}"
        assert is_request
        if not self.reference.waits_too_long:
            size = int.from_bytes(stream[start : start + 4], "big")
            frame = stream[start : start + 4 + size]
            assert self.reference.look_at_requests(frame, self.now_ms)[0] == 0

    def _compare(self) -> None:
        state, reference = self.core.state, self.reference
        others = sum(reference.requests_by_api.values()) - reference.requests_by_api[0]
        assert (
            state.request_left,
            state.answer_left,
            state.produce_requests,
            state.produce_bytes,
            state.batches,
            state.records,
            state.last_produce_ms,
            state.other_requests,
        ) == (
            reference.request_left,
            reference.answer_left,
            reference.requests_by_api[0],
            reference.produce_bytes,
            reference.batches,
            reference.records,
            reference.last_produce_ms,
            others,
        )
        assert state.answer_unread <= state.answer_left
        in_flight = [
            one._replace(correlation_id=one.correlation_id & 0xFFFFFFFF) for one in self.core.in_flight
        ]
        assert in_flight == reference.in_flight

    def compare_tables(self) -> None:
        reference = self.reference
        for api_key in (0, FETCH, HEARTBEAT, SHARE_FETCH):
            assert self.core.requests_of(api_key) == reference.requests_by_api[api_key]
        for topic, partitions in self.topics.items():
            for partition in partitions:
                assert self.core.is_written(topic, partition) == ((topic, partition) in reference.written)

    # ---- requests --------------------------------------------------------------------------------------

    def _request(self) -> bytes:
        """Return a request with its size prefix: most pass, some differ from the grant, some are damaged."""
        dice = self.dice
        kind = dice.random()
        if kind < 0.7:
            frame = self._produce()
        elif kind < 0.995:
            frame = self._other()
        else:
            return dice.choice((bytes(4), b"\xff" * 12, b"\x7f\xff\xff\xff" + bytes(8), dice.randbytes(30)))
        if dice.random() < 0.02:
            frame = damaged(frame, dice)
        return len(frame).to_bytes(4, "big") + frame

    def _produce(self) -> bytes:
        dice, topics = self.dice, []
        for name in dice.sample(list(self.topics), dice.choice((1, 1, 1, 2, 3))):
            partitions = dice.sample(sorted(self.topics[name]), dice.choice((1, 1, 1, 2, 20)))
            topics.append((name, [self._partition(partition) for partition in partitions]))
        odd = 3 * dice.random()
        name, partitions_ = topics[-1]
        if odd < 0.02:
            topics[-1] = (self.other_topic, partitions_)
        elif odd < 0.04:
            partitions_[-1] = self._partition(dice.choice((*range(30), 62, 65, 1022, 1024, 1 << 31)))
        elif odd < 0.06:
            epoch = (int.from_bytes(self.id[8:], "big") + 1).to_bytes(2, "big")
            other = dice.choice((self.id[:8] + epoch, b"\xff" * 10, dice.randbytes(10)))
            partitions_[-1] = self._partition(1, other)
        elif odd < 0.09:
            many = dice.choices(sorted(self.topics[name]), k=dice.choice((100, 101)))
            topics = [(name, [self._partition(partition, None, 100) for partition in many])]
        return self._frame(topics)

    def _frame(self, topics: list[tuple[bytes, list[bytes]]]) -> bytes:
        dice, client_id, transactional_id = self.dice, self.client_id, self.transactional_id
        parts = [
            b"\0\0" + self.version.to_bytes(2, "big") + dice.randbytes(4),
            b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id,
            b"\0",
            b"\0" if transactional_id is None else compact(transactional_id),
            self.acks.to_bytes(2, "big", signed=True) + bytes((0, 0, 0x75, 0x30)),
            uvarint(len(topics) + 1),
        ]
        for name, partitions in topics:
            parts += [name if self.version >= 13 else compact(name), uvarint(len(partitions) + 1)]
            parts += [*partitions, b"\x01" if dice.randrange(300) == 0 else b"\0"]
        return b"".join((*parts, b"\x01" if dice.randrange(300) == 0 else b"\0"))

    def _partition(
        self,
        index: int,
        written_id: bytes | None = None,
        most_records_bytes: int = 20_000,
        *,
        may_differ: bool = True,
    ) -> bytes:
        """Return a partition of a request, seldom with one field that is not as in the grant."""
        dice = self.dice
        odd = dice.randrange(500) if may_differ else 499
        records = bytes(dice.randrange(min(most_records_bytes, dice.choice((1, 1, 70, 70, 20_000, 20_000)))))
        if odd == 0:
            records = bytes(300_000)
        in_transaction = (self.transactional_id is not None) ^ (odd in (1, 2))
        batch = b"".join(
            (
                dice.randbytes(8),
                (49 + len(records) - (odd == 3)).to_bytes(4, "big"),
                dice.randbytes(4) + bytes((1 if odd == 4 else 2,)) + dice.randbytes(4),
                b"\0\x10" if in_transaction else b"\0\0",
                dice.randbytes(20),
                self.id if written_id is None else written_id,
                dice.randbytes(4),
                (1 << 31 if odd == 5 else dice.choice((0, 1, 7, 1_000, (1 << 31) - 1))).to_bytes(4, "big"),
                records,
            )
        )
        length = uvarint(len(batch) + 1)
        if odd < 15 and len(length) < 5:  # longer than it has to be
            length = length[:-1] + bytes((length[-1] | 0x80,)) + b"\x80" * dice.randrange(2) + b"\0"
        return index.to_bytes(4, "big") + length + batch + (b"\x01" if odd == 15 else b"\0")

    def _other(self) -> bytes:
        dice = self.dice
        api_key, version = dice.choice(OFTEN if dice.random() < 0.98 else SELDOM)
        body = dice.randbytes(dice.choice((0, 1, 40, 40, 2_000)))
        if dice.random() < 0.01:
            at = dice.randrange(len(body) + 1)
            body = body[:at] + dice.choice((NEEDLE, NEEDLE[:-1], b"another-topic")) + body[at:]
        elif dice.random() < 0.01:
            body = bytes(262_144 - 8 - 4 + dice.randrange(-1, 2))
        return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + dice.randbytes(4) + body

    # ---- answers ---------------------------------------------------------------------------------------

    def _answers(self) -> list[bytes]:
        """Return an answer to each request in flight, most of them plain, and seldom one too many."""
        dice = self.dice
        answers = [self._answer(request) for request in self.reference.in_flight]
        if dice.random() < 0.02:
            answers.append(dice.randbytes(12))
        return answers

    def _answer(self, request: InFlight) -> bytes:
        dice = self.dice
        correlation_id = request.correlation_id ^ (dice.random() < 0.005)
        begin = correlation_id.to_bytes(4, "big")
        if request.passing is Passing.PLAIN_SUCCESS:
            frame = begin + plain_success(request.version, dice)
        elif request.passing is Passing.ENDS_IN_TAGS:
            frame = begin + fetched(dice)
        else:
            frame = begin + bytes(dice.choice((0, 1, 50, 2_000, 100_000)))
        if dice.random() < 0.03:
            frame = begin + damaged(frame, dice)[4:]
        return len(frame).to_bytes(4, "big") + frame


def plain_success(version: int, dice: Random) -> bytes:
    """Return the answer to a Produce behind its correlation id, nearly always one that passes."""
    topics = dice.choice((1, 1, 2, 3))
    parts = [b"\0" + uvarint(topics + 1)]
    for _ in range(topics):
        partitions = dice.choice((1, 1, 5, 30))
        parts += [dice.randbytes(16) if version >= 13 else compact(b"topic"), uvarint(partitions + 1)]
        for _ in range(partitions):
            error = b"\0\x06" if dice.random() < 0.002 else b"\0\0"
            parts.append(dice.randbytes(4) + error + dice.randbytes(24) + b"\x01\0\0")
        parts.append(b"\0")
    throttle = b"\0\0\0\x09" if dice.random() < 0.01 else bytes(4)
    return b"".join((*parts, throttle, ending(dice)))


def fetched(dice: Random) -> bytes:
    """Return the answer to a Fetch behind its correlation id."""
    topics = dice.choice((0, 1, 1, 2, 3))
    parts = [tags(dice), dice.randbytes(10), count(topics, dice)]
    for _ in range(topics):
        partitions = dice.choice((0, 1, 1, 2, 30))
        parts += [dice.randbytes(16), count(partitions, dice)]
        for _ in range(partitions):
            aborted = dice.choice((0, 0, 0, 1, 5))
            parts += [dice.randbytes(30), count(aborted, dice)]
            parts += [dice.randbytes(16) + tags(dice) for _ in range(aborted)]
            records = dice.choice((0, 0, 1, 100, 20_000))
            parts += [dice.randbytes(4), count(records, dice), bytes(records), tags(dice)]
        parts.append(tags(dice))
    return b"".join((*parts, ending(dice)))


def ending(dice: Random) -> bytes:
    """Return the last tags of an answer: seldom an address."""
    if dice.random() < 0.97:
        return b"\0"
    endpoint = b"\x02" + bytes((0, 0, 0, 1)) + compact(b"broker-1") + bytes((0, 0, 0x23, 0x84)) + b"\0\0"
    address = b"\x01\0" + uvarint(len(endpoint)) + endpoint
    return dice.choice((address, b"\x01\x05\x01x", b"\x00\x00", b"\x01", b"", dice.randbytes(5)))


def count(value: int, dice: Random) -> bytes:
    """Return a compact count; none may be null, and it may be longer than it has to be."""
    if not value and dice.random() < 0.3:
        return b"\0"
    written = uvarint(value + 1)
    if dice.random() < 0.02:
        return written[:-1] + bytes((written[-1] | 0x80,)) + b"\0"
    return written


def tags(dice: Random) -> bytes:
    if dice.random() < 0.95:
        return b"\0"
    fields = [dice.randbytes(dice.choice((0, 3, 100))) for _ in range(dice.choice((1, 2, 32)))]
    return uvarint(len(fields)) + b"".join(
        uvarint(dice.randrange(300)) + uvarint(len(field)) + field for field in fields
    )


def compact(value: bytes) -> bytes:
    return uvarint(len(value) + 1) + value


def damaged(frame: bytes, dice: Random) -> bytes:
    """Return a frame with a few odd bytes, mostly near its beginning or end, or cut, or longer."""
    odd = bytearray(frame)
    for _ in range(dice.choice((1, 1, 2, 4))):
        kind = dice.random()
        if kind < 0.7:
            within = min(len(odd), dice.choice((60, 120, 300, 100_000)))
            at = dice.randrange(within)
            at = at if dice.random() < 0.8 else len(odd) - 1 - min(at, len(odd) - 1)
            odd[at] = dice.choice((*ODD_BYTES, dice.randrange(256)))
        elif kind < 0.85:
            del odd[max(8, dice.randrange(len(odd))) :]
        else:
            odd += dice.randbytes(dice.randrange(1, 4))
    return bytes(odd)


def main() -> None:
    library, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    native, seen, end = load(library), Counter[str](), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            seen += fuzz(native, Random(seed))
        except Exception as error:
            raise AssertionError(f"with the seed {seed}") from error
        seed += 1
    print(dict(seen))


if __name__ == "__main__":
    main()
