"""What a process spawned and made is gone after it, however it ended."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import sys, time
from tools.sandbox import guard
directory = guard.temporary_directory("guarded-")
child = guard.spawn([sys.executable, "-c", "import time; time.sleep(60)"])
ended = guard.spawn([sys.executable, "-c", ""])
ended.wait()
guard.ended(ended)
print(child.pid, directory, flush=True)
{ending}
"""


@pytest.mark.parametrize(
    "ending",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os._exit(0)",
    ],
    ids=["SIGKILL", "SIGTERM", "_exit"],
)
def test_nothing_is_left(ending: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PARENT.format(ending=ending)], stdout=subprocess.PIPE, text=True, timeout=60
    )
    pid, directory = answer.stdout.split()
    give_up_s = time.monotonic() + 15
    while (_runs(int(pid)) or Path(directory).exists()) and time.monotonic() < give_up_s:
        os.sched_yield()
    assert not _runs(int(pid))
    assert not Path(directory).exists()


def _runs(pid: int) -> bool:
    """Whether the process exists and is no zombie that only waits for a parent to notice."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
