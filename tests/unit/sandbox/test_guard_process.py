"""Orders to the guard, and the guard at work on real processes."""

import subprocess
import sys
from pathlib import Path

from tools.sandbox import guard_process
from tools.sandbox.guard_process import follow

PROGRAM = Path(guard_process.__file__)


def test_what_is_not_spared_or_kept_stays_on_the_list() -> None:
    orders = ["kill 1\n", "remove /a b\n", "kill 2\n", "spare 1\n", "remove /c\n", "keep /c\n", "spare 9\n"]
    assert follow(orders) == ([2], ["/a b"])


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


def test_when_its_input_ends_it_kills_and_removes(tmp_path: Path) -> None:
    doomed, kept = tmp_path / "doomed", tmp_path / "kept"
    (doomed / "inside").mkdir(parents=True)
    kept.mkdir()
    with _sleeper() as victim, _sleeper() as spared:
        orders = f"kill {victim.pid}\nkill {spared.pid}\nspare {spared.pid}\n"
        orders += f"remove {doomed}\nremove {kept}\nkeep {kept}\n"
        with subprocess.Popen([sys.executable, "-I", "-S", str(PROGRAM)], stdin=subprocess.PIPE) as guard:
            assert guard.stdin is not None
            guard.stdin.write(orders.encode())
            guard.stdin.close()
            # Reaping the victim here lets the guard see that its group is gone.
            assert victim.wait(timeout=20) == -9
            assert guard.wait(timeout=20) == 0
        assert spared.poll() is None
        spared.kill()
    assert not doomed.exists()
    assert kept.exists()
