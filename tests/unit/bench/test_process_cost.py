"""Costs read from /proc, of this very process."""

import os
import subprocess
import sys
import time

from tools.bench.process_cost import cost_of, family, machine_busy_s


def test_work_costs_processor_time() -> None:
    before, started_ns = cost_of(os.getpid()), time.process_time_ns()
    while time.process_time_ns() - started_ns < 50_000_000:
        pass
    spent = cost_of(os.getpid()) - before
    assert 45_000_000 <= spent.cpu_ns <= 500_000_000


def test_memory_that_is_used_counts() -> None:
    before = cost_of(os.getpid())
    block = bytearray(os.urandom(50_000_000))
    assert (cost_of(os.getpid()) - before).rss_bytes > 0.9 * len(block)


def test_children_belong_to_the_family() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in family(os.getpid())
        assert cost_of(os.getpid()).rss_bytes > cost_of(child.pid).rss_bytes > 0
    finally:
        child.communicate(b"\n")


def test_a_child_that_was_not_waited_for_holds_no_memory() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.pid in family(os.getpid())
        assert cost_of(child.pid).rss_bytes == 0
        assert cost_of(os.getpid()).rss_bytes > 0
    finally:
        child.wait()


def test_the_machine_is_busy_at_times() -> None:
    assert machine_busy_s() > 0
