"""The limit of open files, of a process of its own: what is lowered here would stay lowered."""

import resource
import subprocess
import sys

from tools.bench.machine import allows

LOWERED = """
import resource
from pidgate import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))
print(open_files.allow_most({wanted}), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits_after(hard: int, wanted: int) -> list[int]:
    """What allow_most() says is in force, then the soft and the hard limit."""
    program = LOWERED.format(hard=hard, wanted=wanted)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(number) for number in told.stdout.split()]


def test_the_limit_is_raised_to_the_hard_one() -> None:
    assert limits_after(hard=300, wanted=200) == [300, 300, 300]


def test_where_the_hard_limit_may_not_be_raised_it_is_told() -> None:
    # More than any process may have, root's too (fs.nr_open).
    with open("/proc/sys/fs/nr_open") as file:
        most = int(file.read())
    assert limits_after(hard=300, wanted=most + 1) == [300, 300, 300]


def test_enough_is_as_many_as_wanted() -> None:
    assert allows(300, 300)
    assert not allows(300, 301)
    assert allows(resource.RLIM_INFINITY, 1_000_000)
