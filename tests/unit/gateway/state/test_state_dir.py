"""What a state directory keeps, who may have it, and that a sick disk is in nobody's way."""

import asyncio
import errno
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog

from pidgate.gateway.state.state_dir import StateDir, StateDirInUse, journal
from pidgate.gateway.state.state_dir.journal import FIRST_LINE
from pidgate.quota.user_state import BucketState, LayerState, UserState
from tests.support.state_dirs import append_all, layer, meaning, opened, two_generations, users, values


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """In memory: what limits files limits the captured output too."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """Writes beyond that offset fail, as on a full disk (EFBIG instead of ENOSPC)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_new_directory_is_made_for_its_user_alone_and_holds_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir, loaded = await opened(tmp_path / "var" / "state")
        assert (loaded.users, loaded.written_wall_ms, list(loaded.journal)) == ([], None, [])
        assert state_dir.needs_save
        await append_all(state_dir, values("a"))
        await state_dir.save(users(1), written_wall_ms=1)
        await state_dir.close()

    asyncio.run(run())
    directory = tmp_path / "var" / "state"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}


def test_what_was_saved_and_appended_comes_back(tmp_path: Path) -> None:
    two_generations(tmp_path)

    async def run() -> None:
        state_dir, loaded = await opened(tmp_path)
        assert loaded.users == users(3)
        assert loaded.cluster_bucket == BucketState(1, 2, 3)
        assert (loaded.written_wall_ms, loaded.grace_until_wall_ms, loaded.offsets) == (3, None, {})
        assert list(loaded.journal) == values("c")
        assert (loaded.set_aside, loaded.journal.damaged) == ([], [])
        await state_dir.save(users(4), written_wall_ms=4, offsets={0: 7, 11: 9}, grace_until_wall_ms=99)
        await state_dir.close()
        state_dir, loaded = await opened(tmp_path)
        assert (loaded.offsets, loaded.grace_until_wall_ms, loaded.cluster_bucket) == (
            {0: 7, 11: 9},
            99,
            None,
        )
        await state_dir.close()

    asyncio.run(run())


def test_the_previous_generation_is_kept_and_older_ones_are_deleted(tmp_path: Path) -> None:
    two_generations(tmp_path)

    assert {file.name for file in tmp_path.iterdir()} == {
        "lock", "snapshot-00000002", "journal-00000002", "snapshot-00000003", "journal-00000003",
    }  # fmt: skip


def test_every_start_begins_a_journal_of_its_own_until_a_snapshot_covers_them(tmp_path: Path) -> None:
    """A torn last line must never have another line written behind it."""
    for name in ("a", "b", "c"):

        async def run(name: str = name) -> None:
            state_dir, _ = await opened(tmp_path)
            await append_all(state_dir, values(name))
            await state_dir.close()

        asyncio.run(run())

    assert meaning(tmp_path).journal == [*values("a"), *values("b"), *values("c")]


def test_what_is_appended_while_a_snapshot_is_written_is_in_the_journal_after_it(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        await append_all(state_dir, values("before"))

        def asked() -> Iterator[UserState]:
            state_dir.append(b'{"meanwhile":1}')
            yield from users(1)

        await state_dir.save(asked(), written_wall_ms=1)
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).journal == [b'{"meanwhile":1}']


def test_a_journal_beyond_its_limit_asks_for_a_snapshot(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir = StateDir(tmp_path, journal_limit_bytes=1_000)
        await asyncio.to_thread(state_dir.load)
        await state_dir.save(users(1), written_wall_ms=1)
        assert not state_dir.needs_save
        await append_all(state_dir, [b"x" * 500, b"x" * 500])
        assert state_dir.needs_save
        await state_dir.save(users(1), written_wall_ms=1)
        assert not state_dir.needs_save
        await append_all(state_dir, [b"x" * 500] * 3)
        await state_dir.close()
        # The same after a restart: what was found counts too.
        state_dir = StateDir(tmp_path, journal_limit_bytes=1_000)
        await asyncio.to_thread(state_dir.load)
        assert state_dir.journal_bytes > 1_500
        await state_dir.close()

    asyncio.run(run())


def test_a_journal_that_no_snapshot_relieves_is_bounded(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir = StateDir(tmp_path, journal_limit_bytes=1_000)
        await asyncio.to_thread(state_dir.load)
        for _ in range(20):
            await append_all(state_dir, [b"x" * 490])
        assert state_dir.dropped == 12
        assert state_dir.journal_bytes == 4_000
        await state_dir.save(users(1), written_wall_ms=1)
        await append_all(state_dir, [b"y"])
        assert state_dir.dropped == 12
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).journal == [b"y"]


def test_a_directory_in_use_is_refused_by_name_until_it_is_free(tmp_path: Path) -> None:
    async def run() -> None:
        first, _ = await opened(tmp_path)
        with pytest.raises(StateDirInUse, match=f"{tmp_path} is in use by process {os.getpid()}"):
            StateDir(tmp_path).load()
        await first.close()
        second, _ = await opened(tmp_path)
        await second.close()

    asyncio.run(run())


def test_another_process_is_refused_and_a_killed_one_is_not_in_the_way(tmp_path: Path) -> None:
    program = (
        "import sys; from pidgate.gateway.state.state_dir import StateDir; s = StateDir(sys.argv[1]); s.load();"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    root = Path(__file__).parents[4]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while b"held" not in (line := child.stdout.readline()):
            assert line, "the child ended"
        with pytest.raises(StateDirInUse, match=f"process {child.pid}"):
            StateDir(tmp_path).load()
        child.kill()
    assert meaning(tmp_path).users == []


def test_a_directory_that_cannot_be_made_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def run() -> None:
        state_dir, loaded = await opened(tmp_path / "file" / "state")
        assert (loaded.users, list(loaded.journal), state_dir.needs_save) == ([], [], False)
        state_dir.append(b"{}")
        assert state_dir.dropped == 1
        assert not await state_dir.save(users(1), written_wall_ms=1)
        await state_dir.close()

    asyncio.run(run())


def test_what_is_appended_before_the_directory_is_loaded_is_written_then(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir = StateDir(tmp_path)
        state_dir.append(b"early")
        await asyncio.to_thread(state_dir.load)
        state_dir.append(b"late")
        await state_dir.close()
        state_dir.append(b"too late")
        assert state_dir.dropped == 1

    asyncio.run(run())
    assert meaning(tmp_path).journal == [b"early", b"late"]


def test_a_snapshot_that_does_not_fit_leaves_the_one_before_and_its_journals(tmp_path: Path) -> None:
    two_generations(tmp_path)
    large = [UserState("bob", 9, tuple(layer(fill, bits=80_000) for fill in range(10)))]

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        await append_all(state_dir, values("d"))
        with files_at_most(50_000):
            assert not await state_dir.save(large, written_wall_ms=4)
            assert not await state_dir.save(large, written_wall_ms=4)
        assert (state_dir.saves, state_dir.save_failures) == (0, 2)
        assert state_dir.last_failure is not None
        assert state_dir.last_failure.errno == errno.EFBIG
        assert not state_dir.needs_save  # not at once again
        await append_all(state_dir, values("e"))
        await state_dir.close()

    asyncio.run(run())
    assert not list(tmp_path.glob("*.partial"))
    found = meaning(tmp_path)
    assert found.users == users(3)
    assert found.journal == [*values("c"), *values("d"), *values("e")]


def test_after_a_failure_the_next_snapshot_covers_everything(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        with files_at_most(100):
            assert not await state_dir.save(users(1), written_wall_ms=1)
        assert await state_dir.save(users(2), written_wall_ms=2)
        await append_all(state_dir, values("a"))
        await state_dir.close()

    asyncio.run(run())
    found = meaning(tmp_path)
    assert (found.users, found.journal) == (users(2), values("a"))


def test_a_journal_on_a_full_disk_keeps_lines_whole_and_writes_them_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        await append_all(state_dir, values("a"))
        with files_at_most((tmp_path / "journal-00000001").stat().st_size + 17):
            await append_all(state_dir, values("b"))
            assert not await state_dir.flush()
        assert state_dir._journal.failures == 2
        await append_all(state_dir, values("c"))
        assert await state_dir.flush()
        assert state_dir.dropped == 0
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).journal == [*values("a"), *values("b"), *values("c")]


def test_lines_that_an_old_journal_cannot_take_go_whole_to_the_new_one(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        await append_all(state_dir, values("a"))
        with files_at_most((tmp_path / "journal-00000001").stat().st_size + 17):
            await append_all(state_dir, values("b"))
            assert not await state_dir.save([UserState("u", 1, (layer(1, bits=80_000),))], written_wall_ms=1)
        await state_dir.flush()
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).journal == [*values("a"), *values("b")]


def test_the_buffer_of_a_journal_that_cannot_be_written_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BUFFER_BYTES", 1_000)

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        with files_at_most(len(FIRST_LINE)):
            await append_all(state_dir, [b"x" * 90] * 30)
            await append_all(state_dir, [b"x" * 90] * 30)
            assert state_dir.dropped == 50
        await state_dir.flush()
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).journal == [b"x" * 90] * 10


def test_a_directory_that_vanishes_is_logged_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    path, away = tmp_path / "state", tmp_path / "away"

    async def run() -> None:
        state_dir, _ = await opened(path)
        path.rename(away)
        assert not await state_dir.save(users(1), written_wall_ms=1)
        await append_all(state_dir, values("a"))
        assert state_dir._journal.failures
        away.rename(path)
        assert await state_dir.flush()
        assert await state_dir.save(users(1), written_wall_ms=1)
        await state_dir.close()

    asyncio.run(run())
    assert meaning(path).users == users(1)


def test_only_one_snapshot_at_a_time(tmp_path: Path) -> None:
    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        both = await asyncio.gather(
            state_dir.save(users(1), written_wall_ms=1), state_dir.save(users(2), written_wall_ms=2)
        )
        assert list(both) == [True, False]
        await state_dir.close()

    asyncio.run(run())
    assert meaning(tmp_path).users == users(1)


def test_what_goes_wrong_with_the_users_leaves_the_snapshot_before(tmp_path: Path) -> None:
    two_generations(tmp_path)

    def broken() -> Iterator[UserState]:
        yield users(4)[0]
        raise RuntimeError("changed while asked")

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        with pytest.raises(RuntimeError, match="changed while asked"):
            await state_dir.save(broken(), written_wall_ms=4)
        await state_dir.close()

    asyncio.run(run())
    assert not list(tmp_path.glob("*.partial"))
    assert meaning(tmp_path).users == users(3)


def test_a_save_that_is_cancelled_at_any_step_clears_up_and_loses_nothing(tmp_path: Path) -> None:
    two_generations(tmp_path)

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        for steps in range(12):
            saving = asyncio.ensure_future(state_dir.save(users(3), written_wall_ms=3))
            for _ in range(steps):
                await asyncio.sleep(0)
            saving.cancel()
            await asyncio.wait([saving])
        await append_all(state_dir, values("d"))
        await state_dir.close()

    asyncio.run(run())
    assert not list(tmp_path.glob("*.partial"))
    found = meaning(tmp_path)
    assert found.users == users(3)
    assert list(found.journal)[-5:] == values("d")


def many_users(count: int) -> Iterator[UserState]:
    """As 10,000 ids in use throughout leave it: five layers of 26 kB each."""
    data = bytearray(range(250)) * 104
    for number in range(count):
        layers = tuple(
            LayerState(10_000, 208_000, 14, 10_000, 10_000 * (at == 0), at, at, bytes(data))
            for at in range(5)
        )
        yield UserState(f"user-{number}", number, layers, BucketState(5, 6, 7))


def test_130_megabytes_are_saved_without_holding_up_the_loop_and_loaded_in_seconds(tmp_path: Path) -> None:
    """Steps are measured in processor time of the loop's own thread: the machine may be busy with others."""
    longest_s = 0.0

    async def beat() -> None:
        nonlocal longest_s
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        beating = asyncio.ensure_future(beat())
        assert await state_dir.save(many_users(1_000), written_wall_ms=1)
        beating.cancel()
        assert state_dir.snapshot_bytes > 130_000_000
        await state_dir.close()

    asyncio.run(run())
    assert longest_s < 0.010
    started_s = time.process_time()
    loaded = StateDir(tmp_path).load()
    assert time.process_time() - started_s < 3
    assert loaded.users[::300] == list(islice(many_users(1_000), 0, None, 300))
    (tmp_path / "snapshot-00000002").unlink()


def test_a_journal_whose_file_fails_as_it_is_closed_writes_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system reports there what it could not write; the number is free all the same."""
    closes, failing = os.close, list[int]()

    def close(fd: int) -> None:
        closes(fd)
        if fd in failing:
            failing.remove(fd)
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    async def run() -> None:
        state_dir, _ = await opened(tmp_path)
        await append_all(state_dir, values("a"))
        fd = state_dir._journal._writer._fd
        assert fd is not None
        failing.append(fd)
        monkeypatch.setattr(os, "close", close)
        assert not await state_dir.save(users(1), written_wall_ms=1)
        with (tmp_path / "another").open("w") as another:
            assert another.fileno() == fd
            await append_all(state_dir, values("b"))
        assert (tmp_path / "another").read_bytes() == b""
        await state_dir.close()

    asyncio.run(run())
    state_dir = StateDir(tmp_path)
    assert list(state_dir.load().journal) == [*values("a"), *values("b")]
    asyncio.run(state_dir.close())
