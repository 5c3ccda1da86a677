"""A disk that hangs keeps no gateway from ending."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pidgate.gateway.disk_thread import DiskThread
from pidgate.gateway.state.state_dir import directory
from pidgate.gateway.state.state_dir.directory import StateDir
from pidgate.gateway.state.state_dir.frames import Encoded
from pidgate.gateway.state.state_dir.snapshot import About, SnapshotFile
from pidgate.quota.restoring import UserState
from tests.support.state_dirs import save

CLOSING_S = 0.3
A_GATEWAY_WHOSE_DISK_HANGS = """
import asyncio, sys, time
from pathlib import Path
from pidgate.gateway.config import file_watch, loading
from pidgate.gateway.config.file_watch import FileWatch
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.state.state_dir import directory, files, kept_file
from pidgate.gateway.tls.live import LiveContext, follow

work, config = sys.argv[1:]
of, name = {
    "load": (files, "listing"),
    "quotas": (kept_file.KeptFile, "_replace"),
    "configuration": (file_watch, "signature"),
    "certificates": (LiveContext, "awaits_renewal"),
}[work]
directory.CLOSING_S = kept_file.CLOSING_S = 0.3
is_hanging = False

def hang(*_given):
    global is_hanging
    is_hanging = True
    time.sleep(1_000)

async def main():
    gateway = Gateway(loading.load(Path(config)), Path(config))
    if work == "load":
        setattr(of, name, hang)
    await gateway.start()
    setattr(of, name, hang)
    gateway._quotas._dir.changed()
    if work == "certificates":
        following = asyncio.create_task(follow([LiveContext(object, (), ())]))
    while not is_hanging:
        await asyncio.sleep(0.01)
    await gateway.drain()

asyncio.run(main())
print("ends")
"""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set: it writes; until then every write hangs."""
    writes = threading.Event()
    add_users = SnapshotFile.add_users

    def when_it_writes(file: SnapshotFile, users: Sequence[Encoded]) -> None:
        writes.wait()
        add_users(file, users)

    monkeypatch.setattr(SnapshotFile, "add_users", when_it_writes)
    monkeypatch.setattr(directory, "CLOSING_S", CLOSING_S)
    yield writes
    writes.set()


async def close(path: Path) -> tuple[float, StateDir]:
    """Close a directory with a last snapshot; return how long it took (s)."""
    loop = asyncio.get_running_loop()
    state_dir = StateDir(path)
    await asyncio.to_thread(state_dir.load)
    began_s = loop.time()
    async with asyncio.timeout(20):
        await state_dir.close(save(state_dir, [UserState("alice", (1, 2), ())], About(1, {})))
    return loop.time() - began_s, state_dir


def test_closing_does_not_wait_for_it_and_says_so(
    tmp_path: Path, disk: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        took_s, state_dir = await close(tmp_path)
        assert took_s >= CLOSING_S
        assert "the disk hangs" in capsys.readouterr().out
        assert not await save(state_dir, [], About(2, {}))
        disk.set()  # or the loop would be closed while the thread reports to it

    asyncio.run(scenario())


def test_one_that_writes_is_waited_for(tmp_path: Path, disk: threading.Event) -> None:
    disk.set()

    async def scenario() -> None:
        _, state_dir = await close(tmp_path)
        assert state_dir.saves == 1

    asyncio.run(scenario())
    again = StateDir(tmp_path)
    loaded = again.load()
    assert [user.user for user, _ in loaded.users] == ["alice"]
    asyncio.run(again.close())


@pytest.mark.parametrize("work", ["load", "quotas", "configuration", "certificates"])
def test_a_gateway_ends_whatever_it_does_with_the_disk(tmp_path: Path, work: str) -> None:
    config = tmp_path / "pidgate.yaml"
    config.write_text(
        "cluster: {bootstrap_servers: ['127.0.0.1:1']}\n"
        "listeners: [{bind: '127.0.0.1:0'}]\n"
        "admin: {bind: '127.0.0.1:0'}\n"
        "events: {enabled: false}\n"
        f"state_dir: {tmp_path / 'state'}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", A_GATEWAY_WHOSE_DISK_HANGS, work, str(config)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "ends"), ended.stderr


def test_the_thread_does_what_it_is_given_in_order_and_reports_what_fails() -> None:
    done: list[int] = []
    thread = DiskThread("test")
    futures = [thread.submit(done.append, number) for number in range(100)]
    failing = thread.submit(int, "x")
    thread.shutdown()
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(5)
    assert all(future.done() for future in futures)
    assert done == list(range(100))
