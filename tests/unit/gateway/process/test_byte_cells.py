"""Byte windows that workers share: with one writer Kafka's to the millisecond, with several their exact sum."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.gateway.process.byte_cells import REREAD_MS, ByteCells, Column, NotTheFile, _digest, create
from pidgate.quota.byte_bucket import Share
from pidgate.quota.byte_quota import IDLE_MS, ByteQuota, ClientSensors
from pidgate.quota.byte_rates import Kind
from pidgate.quota.settings import ByteEntity, ByteQuotas, ByteRates, Mode, Quotas
from tests.unit.quota.byte_flood import Flood
from tests.unit.quota.kafka_rate import PlainSensor

SAMPLES, SAMPLE_MS = 11, 1_000
WINDOW_MS = SAMPLES * SAMPLE_MS
ROOT = Path(__file__).parents[4]


def quotas_of(rates: dict[ByteEntity, ByteRates], sample_ms: int = SAMPLE_MS) -> Quotas:
    return Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(SAMPLES, sample_ms, rates))


HELD = quotas_of({("alice", None): ByteRates(500)})
HELD_BY_CLIENT = quotas_of({("", ""): ByteRates(500)})


def meter_of(quota: ByteQuota, client_id: str = "app", now_ms: int = 0) -> ClientSensors:
    sensors = quota.sensors(Kind.PRODUCE, "alice", client_id, now_ms)
    assert sensors is not None
    # As the first record does it, but before anything is counted.
    sensors._bucket = quota.bucket(Kind.PRODUCE, "alice", sensors._bound, now_ms)
    return sensors


def share_of(quota: ByteQuota, client_id: str = "app") -> Share:
    bucket = meter_of(quota, client_id)._bucket
    assert bucket is not None
    assert bucket.share is not None
    return bucket.share


class Gateway:
    """The workers of one gateway, all in this process: each opens the file for itself."""

    def __init__(self, directory: Path, workers: int = 3, places: int = 50, quotas: Quotas = HELD) -> None:
        self.path = directory / "byte-cells"
        self.quotas = quotas
        create(self.path, workers, SAMPLES, places)
        self._closing = ExitStack()

    def cells(self, number: int) -> ByteCells:
        return self._closing.enter_context(closing(ByteCells(self.path, number)))

    def worker(self, number: int) -> ByteQuota:
        return ByteQuota(self.quotas, 0, self.cells(number))

    def close(self) -> None:
        self._closing.close()


@pytest.fixture
def gateway_of(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    made: list[Gateway] = []

    def make(**options: object) -> Gateway:
        made.append(Gateway(tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()


steps = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3_000), st.sampled_from([999, 1_000, 10_999, 11_000, 30_000])),
        st.integers(0, 4_000),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=60,
)
"""(milliseconds since the one before, bytes, which worker)."""


@given(steps)
@settings(max_examples=60, deadline=None)
def test_with_one_writer_every_decision_is_kafkas(history: list[tuple[int, int, int]]) -> None:
    """The others read, and see the same; there is no rounding at all."""
    with TemporaryDirectory() as directory:
        gateway = Gateway(Path(directory), workers=2)
        with closing(gateway):
            writer, reader = gateway.worker(1), gateway.worker(2)
            sensors, plain = meter_of(writer), PlainSensor(SAMPLES, SAMPLE_MS, 500)
            meter_of(reader)
            now_ms = 0
            for gap_ms, size_bytes, _ in history:
                now_ms += gap_ms + REREAD_MS
                assert sensors.record(size_bytes, now_ms) == plain.record(size_bytes, now_ms)
                rates = [next(quota.snapshots(now_ms)).bytes_per_s for quota in (writer, reader)]
                assert rates[0] == rates[1]


@given(steps)
@settings(max_examples=60, deadline=None)
def test_with_several_writers_the_sum_is_exact_but_for_one_sample_at_its_old_end(
    history: list[tuple[int, int, int]],
) -> None:
    """Each begins its samples with its own records. So what counts is everything of the last eleven seconds, nothing
    that is older than one sample more; and the window is that long, or a sample longer, or shorter.
    """
    with TemporaryDirectory() as directory:
        gateway = Gateway(Path(directory))
        with closing(gateway):
            windows = [ByteQuota(HELD, 0, gateway.cells(number)) for number in (1, 2, 3)]
            sensors_of = [meter_of(quota) for quota in windows]
            shares = [share_of(quota) for quota in windows]
            recorded: list[tuple[int, int]] = []
            now_ms = 0
            for gap_ms, size_bytes, number in history:
                now_ms += gap_ms + REREAD_MS
                recorded.append((now_ms, size_bytes))
                sensors_of[number].record(size_bytes, now_ms)
                bucket = sensors_of[number]._bucket
                assert bucket is not None
                own = bucket.window
                others, oldest_ms = shares[number].others(now_ms)
                total = own.total + others
                within = sum(size for at_ms, size in recorded if now_ms - at_ms < WINDOW_MS)
                at_most = sum(size for at_ms, size in recorded if now_ms - at_ms < WINDOW_MS + SAMPLE_MS)
                assert within <= total <= at_most
                oldest_ms = own.oldest_ms if oldest_ms is None else min(oldest_ms, own.oldest_ms)
                first_ms = min(at_ms for at_ms, _ in recorded if now_ms - at_ms < WINDOW_MS)
                assert first_ms - SAMPLE_MS < oldest_ms <= first_ms


@given(steps, st.sets(st.integers(0, 60), max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_worker_that_is_started_again_goes_on_in_its_column(
    history: list[tuple[int, int, int]], dies_before: set[int]
) -> None:
    with TemporaryDirectory() as directory:
        gateway = Gateway(Path(directory), workers=2)
        with closing(gateway):
            writer, reader = gateway.worker(1), gateway.worker(2)
            sensors, plain = meter_of(writer), PlainSensor(SAMPLES, SAMPLE_MS, 500)
            meter_of(reader)
            now_ms = 0
            for count, (gap_ms, size_bytes, _) in enumerate(history):
                now_ms += gap_ms + REREAD_MS
                if count in dies_before:
                    writer = gateway.worker(1)
                    sensors = meter_of(writer, now_ms=now_ms)
                assert sensors.record(size_bytes, now_ms) == plain.record(size_bytes, now_ms)
                rates = [next(quota.snapshots(now_ms)).bytes_per_s for quota in (writer, reader)]
                assert rates[0] == rates[1]


def test_what_one_worker_counts_throttles_at_the_other(gateway_of: Callable[..., Gateway]) -> None:
    gateway = gateway_of()
    one, other = meter_of(gateway.worker(1)), meter_of(gateway.worker(2))

    assert one.record(5_000, 100) == 0
    assert other.record(1, 200) == 0  # the window is 10.1 s
    assert other.record(249, 300) == 300  # 5250 bytes in 10.2 s, which began at the first worker
    assert one.record(0, 300) == 300


def test_what_others_counted_is_known_within_ten_milliseconds(gateway_of: Callable[..., Gateway]) -> None:
    gateway = gateway_of()
    one, other = meter_of(gateway.worker(1)), meter_of(gateway.worker(2))
    other.record(0, 100)
    one.record(6_000, 100)

    assert other.record(0, 109) == 0
    assert other.record(0, 110) == 1_990


def test_clients_of_several_workers_keep_one_rate(gateway_of: Callable[..., Gateway]) -> None:
    """As in one process (tests/unit/quota/test_byte_quota.py), with three connections on each of three workers."""
    gateway = gateway_of(quotas=quotas_of({("alice", None): ByteRates(2_000_000)}))
    workers = [gateway.worker(number) for number in (1, 2, 3)]
    flood = Flood([meter_of(quota) for quota in workers for _ in range(3)], 16_384, 110_000)

    for begin_ms in (11_000, 33_000, 55_000, 77_000):
        assert flood.bytes_per_s(begin_ms, begin_ms + 22_000) == pytest.approx(2_000_000, rel=0.05)


def test_buckets_and_kinds_do_not_meet(gateway_of: Callable[..., Gateway]) -> None:
    quotas = quotas_of({("", ""): ByteRates(500, 500)})
    gateway = gateway_of(quotas=quotas)
    one, other = gateway.worker(1), gateway.worker(2)
    meter_of(one, "a").record(90_000, 0)

    asked = [(Kind.PRODUCE, "alice", "b"), (Kind.FETCH, "alice", "a"), (Kind.PRODUCE, "alic", "ea")]
    for kind, user, client_id in asked:
        sensors = other.sensors(kind, user, client_id, 0)
        assert sensors is not None
        assert sensors.record(1, 0) == 0
    assert meter_of(other, "a").record(0, 0) == 170_000


class TestPlaces:
    def test_without_room_a_process_counts_for_itself_until_there_is_some(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        gateway = gateway_of(places=2, quotas=HELD_BY_CLIENT)
        one, other = gateway.worker(1), gateway.worker(2)
        for client_id in ("a", "b", "c"):
            meter_of(one, client_id).record(6_000, 0)
        late = meter_of(other, "c")

        assert late.record(1, 0) == 0  # does not see the 6000
        assert (one.not_shared, other.not_shared) == (1, 1)
        assert meter_of(one, "c").record(0, 0) == 2_000

        # An hour later a and b are gone, and c gets a place that does not remember them.
        meter_of(one, "c").record(6_000, IDLE_MS)
        late.record(1, IDLE_MS)
        for quota in (one, other):
            quota.sweep(IDLE_MS)
        assert meter_of(one, "c").record(0, IDLE_MS + 100) == 1_900
        assert late.record(0, IDLE_MS + 200) == 1_802

    def test_a_place_is_not_taken_from_who_uses_it(self, gateway_of: Callable[..., Gateway]) -> None:
        gateway = gateway_of(places=1, quotas=HELD_BY_CLIENT)
        one, other = gateway.worker(1), gateway.worker(2)
        meter_of(one, "a").record(1, 0)
        meter_of(other, "a").record(1, 0)
        one.sweep(IDLE_MS)

        meter_of(one, "b", IDLE_MS)
        assert one.not_shared == 1
        other.sweep(IDLE_MS)
        meter_of(one, "c", IDLE_MS)
        assert one.not_shared == 1

    def test_a_place_of_a_dead_worker_is_kept_until_it_is_back(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        gateway = gateway_of(places=1, quotas=HELD_BY_CLIENT)
        meter_of(gateway.worker(1), "a").record(5_500, 0)
        other = gateway.worker(2)
        meter_of(other, "b", WINDOW_MS)
        assert other.not_shared == 1

        back = gateway.worker(1)
        meter_of(other, "c", WINDOW_MS - 1)
        assert other.not_shared == 2  # what was counted there still counts
        assert meter_of(other, "a").record(0, 10) == 990
        meter_of(back, "a", 10)

    def test_what_is_left_there_is_not_counted_for_the_next(self, gateway_of: Callable[..., Gateway]) -> None:
        gateway = gateway_of(places=1, quotas=HELD_BY_CLIENT)
        one = gateway.worker(1)
        meter_of(one, "a").record(90_000, 0)
        gateway.worker(1)
        taken = gateway.worker(2)
        sensors = meter_of(taken, "b", WINDOW_MS)

        assert taken.not_shared == 0
        assert sensors.record(5_000, WINDOW_MS) == 0
        assert sensors.record(0, WINDOW_MS + REREAD_MS) == 0

    def test_a_free_place_is_none_that_begins_in_another_ones_digest(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        """A digest may end with zeros, and what is free is zeros."""
        name = next(
            name
            for name in map(str, range(100_000))
            if _digest(Kind.PRODUCE, ("alice", name)).endswith(b"\0")
        )
        gateway = gateway_of(quotas=HELD_BY_CLIENT)
        one, other = gateway.worker(1), gateway.worker(2)
        meter_of(one, name).record(6_000, 0)

        assert meter_of(other, "another").record(0, 0) == 0
        assert meter_of(other, name).record(0, 0) == 2_000

    def test_more_samples_than_the_file_has_room_for_are_not_shared(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        gateway = gateway_of()
        quota = gateway.worker(1)
        wider = Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(12, SAMPLE_MS, HELD.bytes.rates))
        quota.set_quotas(wider, 0)

        assert meter_of(quota).record(5_501, 0) == 2
        assert quota.not_shared == 1


class Watched:
    """The words of a file; `look` is called after every store."""

    def __init__(self, words: memoryview[int], look: Callable[[], None]) -> None:
        self._words = words
        self._look = look

    def __setitem__(self, at: int, value: int) -> None:
        self._words[at] = value
        self._look()


def test_between_any_two_stores_a_reader_sees_the_sample_whole_or_not_at_all(
    gateway_of: Callable[..., Gateway],
) -> None:
    """Even one whose clock is behind, for which the cell that is written over is not too old yet."""
    gateway = gateway_of()
    writer, reader = share_of(gateway.worker(1)), share_of(gateway.worker(2))
    assert isinstance(writer, Column)
    assert isinstance(reader, Column)
    late_ms = 3_000
    seen: list[tuple[int, int | None]] = []
    now_ms = 0
    words = writer._words
    writer._words = Watched(words, lambda: seen.append(reader._read(now_ms - late_ms)))  # type: ignore[assignment]
    for second in range(40):
        now_ms = second * SAMPLE_MS
        before = reader._read(now_ms - late_ms)
        seen.clear()
        writer.write(now_ms, now_ms, 1 << second)
        after = reader._read(now_ms - late_ms)
        oldest = [at_ms for at_ms in range(0, now_ms, SAMPLE_MS) if at_ms > now_ms - late_ms - WINDOW_MS]
        # The oldest of what this reader remembers may be gone already; nothing else changes but the new sample.
        without_oldest = before[0] - (1 << oldest[0] // SAMPLE_MS) if oldest else 0
        assert len(seen) == 4
        assert {total for total, _ in seen} <= {before[0], without_oldest, after[0]}
        assert after[0] in (before[0] + (1 << second), without_oldest + (1 << second))


class LockWatcher(ByteCells):
    """Looks, whenever a place is looked for or given away, whether anybody else could do so now."""

    unlocked = 0
    looked = 0

    def _find(self, digest: bytes) -> int | None:
        self._look()
        return super()._find(digest)

    def _settle(self, place: int, digest: bytes) -> None:
        self._look()
        super()._settle(place, digest)
        self._look()

    def _look(self) -> None:
        self.looked += 1
        with self.path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            self.unlocked += 1

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        super().__init__(path, number)


def test_places_are_given_away_under_a_lock_that_is_lifted_then(gateway_of: Callable[..., Gateway]) -> None:
    gateway = gateway_of()
    with closing(LockWatcher(gateway.path, 1)) as cells:
        for name in ("a", "b", "a"):
            assert cells.share(Kind.PRODUCE, (name, None), SAMPLES, SAMPLE_MS, 0) is not None
        assert cells.looked >= 9
        assert cells.unlocked == 0
        cells._look()
        assert cells.unlocked == 1


class TestHalfWritten:
    """A worker may die between any two of its stores."""

    def cell(self, gateway: Gateway) -> tuple[ByteCells, int]:
        """Where worker 1 has its newest sample."""
        cells = gateway.cells(3)
        first = cells._claims(0) + cells._workers
        column = cells.words[first : first + cells._column_words].tolist()
        return cells, first + 3 * max(range(len(column) // 3), key=lambda at: column[3 * at])

    def test_a_sample_without_its_last_record_is_alone_in_not_being_counted(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        gateway = gateway_of()
        writer = gateway.worker(1)
        meter_of(writer).record(6_000, 0)
        meter_of(writer).record(3_000, 1_000)
        cells, at = self.cell(gateway)
        cells.words[at] = -(1 << 62)

        assert meter_of(gateway.worker(2)).record(0, 1_000) == 2_000  # 6000 bytes in 10 s
        back = gateway.worker(1)
        assert meter_of(back, now_ms=1_000).record(3_000, 1_000) == 8_000

    def test_a_begin_that_is_still_the_old_one_makes_the_window_no_longer_than_a_sample(
        self, gateway_of: Callable[..., Gateway]
    ) -> None:
        gateway = gateway_of()
        meter_of(gateway.worker(1)).record(6_000, 500_000)
        cells, at = self.cell(gateway)
        cells.words[at + 1] = 3

        assert meter_of(gateway.worker(2)).record(0, 500_000) == 2_000
        assert meter_of(gateway.worker(1), now_ms=500_000).record(0, 500_000) == 0


@pytest.mark.parametrize("number", [0, 4])
def test_a_file_is_for_its_workers(tmp_path: Path, number: int) -> None:
    create(tmp_path / "cells", 3, SAMPLES, 10)

    with pytest.raises(NotTheFile, match=f"worker {number}"):
        ByteCells(tmp_path / "cells", number)


def test_another_file_is_refused_and_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(bytes(100_000))

    with pytest.raises(NotTheFile):
        ByteCells(tmp_path / "other", 1)
    with pytest.raises(FileExistsError):
        create(tmp_path / "other", 1, SAMPLES)


def test_the_file_is_nobody_elses_and_of_bounded_size(tmp_path: Path) -> None:
    create(tmp_path / "cells", 64, 100)

    status = (tmp_path / "cells").stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size <= 33 * 2**20


WRITER = """
import sys
from pathlib import Path
from random import Random
from pidgate.gateway.process.byte_cells import ByteCells
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.byte_rates import Kind
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas

number = int(sys.argv[2])
quotas = Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(11, 60_000, {("", ""): ByteRates(10**12)}))
quota = ByteQuota(quotas, 0, ByteCells(Path(sys.argv[1]), number))
print("ready", flush=True)
sys.stdin.readline()
rng = Random(number)
sums = [0] * 40
for now_ms in range(20_000):
    client = rng.randrange(40)
    size = rng.randrange(1_000_000)
    quota.sensors(Kind.PRODUCE, "alice", str(client), now_ms).record(size, now_ms * 30)
    sums[client] += size
print(*sums, quota.not_shared, flush=True)
"""


def test_processes_that_write_at_the_same_time_sum_exactly(gateway_of: Callable[..., Gateway]) -> None:
    """Ten samples each, 40 buckets that both make at once, and a third process that reads all the while."""
    gateway = gateway_of(quotas=quotas_of({("", ""): ByteRates(10**12)}, sample_ms=60_000))
    reader = gateway.worker(3)
    shares = [share_of(reader, str(client)) for client in range(40)]
    with ExitStack() as running:
        writers = [running.enter_context(writer(gateway.path, number)) for number in (1, 2)]
        for process in writers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in writers:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        looks, seen = 0, [0]
        while any(process.poll() is None for process in writers):
            looks += 1
            total, oldest_ms = shares[looks % 40].others(looks * REREAD_MS % 600_000)
            assert total >= 0
            assert oldest_ms is None or 0 <= oldest_ms < 600_000
            if looks % 40 == 0:
                seen.append(total)
        told = [process.communicate()[0].split() for process in writers]
        assert [process.returncode for process in writers] == [0, 0]

    assert seen == sorted(seen)  # one bucket's sum never falls while nothing is forgotten
    assert len(set(seen)) > 10
    assert [int(numbers[40]) for numbers in told] == [0, 0]
    again = gateway.worker(3)
    for client in range(40):
        total, _ = share_of(again, str(client)).others(599_999)
        assert total == sum(int(numbers[client]) for numbers in told)


@contextmanager
def writer(path: Path, number: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(number)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
