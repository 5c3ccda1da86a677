"""kill -9 while a snapshot is written: the last complete save is there, whole, and no other."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import structlog

from tests.support import state_dir_child
from tests.support.bounds import THOROUGH
from tests.support.state_dir_child import SAVED
from tests.support.state_dirs import opened

ROOT = Path(__file__).parents[4]
KILLS = 30 if THOROUGH else 15


def run_and_kill(directory: Path, saved: Path, after_s: float) -> None:
    command = [sys.executable, "-m", "tests.support.state_dir_child", str(directory), str(saved), "0.002"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while b"ready" not in (line := child.stdout.readline()):
            assert line, "the child ended by itself"
        try:
            child.wait(after_s)
        except subprocess.TimeoutExpired:
            child.kill()
        else:
            raise AssertionError("the child ended by itself")


async def found_in(directory: Path) -> int:
    """Return the seed that is there; 0 for nothing."""
    with structlog.testing.capture_logs():
        state_dir, loaded = await opened(directory)
        await state_dir.close()
    assert loaded.set_aside == []
    if not loaded.users:
        return 0
    found = [user for user, _ in loaded.users]
    assert found == list(state_dir_child.users(found[0].secrets[0]))
    return found[0].secrets[0]


def test_kills_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(20261121)
    directory, saved = tmp_path / "state", tmp_path / "saved"
    saved.write_bytes(bytes(SAVED.size))
    unfinished = 0
    for kill in range(KILLS):
        run_and_kill(directory, saved, chance.uniform(0.005, 0.4))
        complete, begun = SAVED.unpack(saved.read_bytes())
        found = asyncio.run(found_in(directory))

        assert complete <= found <= begun, f"kill {kill}"
        unfinished += complete < begun
    print(f"{begun} saves; {unfinished} of {KILLS} kills while one was written")
    assert begun > KILLS
    assert unfinished, "no save was ever torn: the kills did not hit"
