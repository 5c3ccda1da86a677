"""kill -9: everything that was appended more than 200 ms before is there, whatever was being written."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import structlog

from tests.support.bounds import THOROUGH
from tests.support.state_dir_child import STAMP, TIMES_BYTES, lines_in
from tests.support.state_dirs import opened

ROOT = Path(__file__).parents[4]
KILLS = 30 if THOROUGH else 15
PROMISED_MS = 200


def run_and_kill(directory: Path, times: Path, pause_s: float, after_s: float) -> int:
    """Returns when it was killed (monotonic ns)."""
    arguments = [str(directory), str(times), str(pause_s)]
    command = [sys.executable, "-m", "tests.support.state_dir_child", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while b"ready" not in (line := child.stdout.readline()):
            assert line, "the child ended by itself"
        try:
            child.wait(after_s)
        except subprocess.TimeoutExpired:
            killed_ns = time.monotonic_ns()
            child.kill()
        else:
            raise AssertionError("the child ended by itself")
    return killed_ns


async def found_in(directory: Path) -> tuple[int, list[int]]:
    with structlog.testing.capture_logs():
        state_dir, loaded = await opened(directory)
        found = lines_in(loaded)
        await state_dir.close()
    assert (loaded.set_aside, loaded.journal.damaged) == ([], [])
    return found


def test_kills_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(20261121)
    directory, times = tmp_path / "state", tmp_path / "times"
    losses_ms, appended_in_all = [], 0
    for kill in range(KILLS):
        times.write_bytes(bytes(TIMES_BYTES))
        # One half with snapshot upon snapshot, so that kills hit those; the other with the journal alone.
        pause_s = 0.01 if kill % 2 else 60.0
        killed_ns = run_and_kill(directory, times, pause_s, chance.uniform(0.005, 0.4))
        stamps = [stamp for stamp in STAMP.iter_unpack(times.read_bytes()) if stamp[0]]
        covered, numbers = asyncio.run(found_in(directory))

        known = sorted({number for number in numbers if number > covered})
        assert known == list(range(covered + 1, covered + 1 + len(known))), "a gap"
        last = max(covered, *numbers, 0)
        lost = [(number, at_ns) for number, at_ns in stamps if number > last]
        losses_ms.append((killed_ns - lost[0][1]) / 1e6 if lost else 0.0)
        assert losses_ms[-1] < PROMISED_MS, f"kill {kill}: {len(lost)} lines of {len(stamps)} lost"
        appended_in_all += len(stamps)

    print(f"{appended_in_all} lines, lost at most {max(losses_ms):.0f} ms of them at a kill")
    assert appended_in_all > KILLS * 20
    assert max(losses_ms) > 0, "nothing was ever lost: the kills did not hit"
