"""Time without a core: what the kernel shows of a thread and of its core, and where it shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidgate.gateway.metrics.core_taken import CoreTaken

NAME = "a (strange) name"


def write(proc: Path, *, waited_ms: int = 0, steal: tuple[int, int] = (0, 0), core: int = 0) -> None:
    """Pages as Linux has them, of a thread that ran last on this core; steal in hundredths of a second."""
    (proc / "thread-self").mkdir(exist_ok=True)
    (proc / "thread-self" / "schedstat").write_text(f"845084 {waited_ms * 1_000_000} 2\n")
    between = " ".join(["0"] * 35)
    (proc / "thread-self" / "stat").write_text(f"17 ({NAME}) S {between} {core} 0 0\n")
    lines = [("cpu", sum(steal)), ("cpu0", steal[0]), ("cpu1", steal[1])]
    cores = "".join(
        f"{name} 1676898 1748002 516234 915393 6083 0 44385 {ticks} 0 0\n" for name, ticks in lines
    )
    (proc / "stat").write_text(f"{cores}intr 57981133 0 0\nctxt 1\n")


def test_a_wait_for_the_core_is_counted_once(tmp_path: Path) -> None:
    write(tmp_path, waited_ms=700)
    taken = CoreTaken(tmp_path)
    write(tmp_path, waited_ms=740)
    assert taken.since_last_s(0.05) == pytest.approx(0.04)
    assert taken.since_last_s(0.05) == 0


def test_steal_counts_of_the_core_that_it_ran_on(tmp_path: Path) -> None:
    write(tmp_path, steal=(100, 200))
    taken = CoreTaken(tmp_path)
    write(tmp_path, steal=(190, 203), core=1, waited_ms=5)
    assert taken.since_last_s(0.1) == pytest.approx(0.03 + 0.005)


def test_where_nothing_can_be_read_nothing_was_taken(tmp_path: Path) -> None:
    taken = CoreTaken(tmp_path)
    assert taken.since_last_s(1.0) == 0
    write(tmp_path, waited_ms=700)
    (tmp_path / "thread-self" / "schedstat").write_text("")
    assert taken.since_last_s(1.0) == 0
