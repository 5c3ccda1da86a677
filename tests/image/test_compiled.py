"""The hot path as mypyc compiles it does what its source does: tests of the plain source, run once more on it.

Tests that put something of their own in the place of a method are left out: compiled code calls its own methods
directly.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.image import ROOT, Container, has_compiler
from tools.bench.compiled import environment

WITH_STAND_INS = (
    "test_client_channel.py::test_an_error_of_ours_ends_the_one_connection",
    "test_writing_from_shared_buffer.py::test_a_mutant_is_noticed",
)
SAME_TESTS = (
    "tests/unit/gateway/proxy/test_session.py",
    "tests/unit/gateway/proxy/test_client_channel.py",
    "tests/unit/gateway/proxy/test_buffers.py",
    "tests/unit/gateway/proxy/test_gateway_topics.py",
    "tests/unit/gateway/proxy/test_refuse_init.py",
    "tests/unit/gateway/proxy/test_writing_from_shared_buffer.py",
    "tests/unit/gateway/recording/test_recorder_in_session.py",
    "tests/unit/protocol/test_produce.py",
    "tests/unit/protocol/test_produce_answers.py",
    "tests/unit/protocol/test_repeated_produce.py",
    "tests/unit/quota/test_bloom.py",
    "tests/unit/quota/test_layered_filter.py",
    "tests/unit/quota/test_producer_ids.py",
    "tests/unit/quota/test_restoring.py",
    "tests/unit/quota/test_sticky.py",
    # Everything together, in 400 schedules.
    "tests/unit/simulator/test_schedules.py::test_nothing_is_lost_doubled_or_let_through[0]",
    "tests/unit/simulator/test_schedules.py::test_nothing_is_lost_doubled_or_let_through[1]",
)
pytestmark = [
    pytest.mark.timeout(900),  # it may be the first that needs the build
    pytest.mark.skipif(not has_compiler(), reason="there is no C compiler here"),
]


@pytest.fixture
def folder(container: Container) -> Path:
    return container.packages


def python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**environment(folder), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    env.pop("HYPOTHESIS_PROFILE", None)  # the long forms are for the source
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def test_the_compiled_modules_are_what_runs(folder: Path) -> None:
    program = (
        "from pidgate.gateway.proxy import client_channel, session; "
        "print(client_channel.__file__, session.__file__)"
    )
    told = python(folder, "-c", program).stdout.split()
    assert [path.startswith(str(folder)) and path.endswith(".so") for path in told] == [True, True]


@pytest.mark.slow
def test_the_tests_of_the_hot_path_hold_on_it(folder: Path) -> None:
    left_out = [f"--deselect=tests/unit/gateway/proxy/{test}" for test in WITH_STAND_INS]
    ran = python(
        folder,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        f"pythonpath={folder}",
        "-k",
        "not mutant",  # a mutant is a method of another kind in the place of ours
        *left_out,
        *SAME_TESTS,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert " passed" in ran.stdout
