"""The fault matrix is held to the tests there are: no row without its test, no fault test without its row."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support.architecture_page import generated
from tests.support.fault_matrix import rows
from tests.support.faults_page import PAGE, PARTS
from tests.support.import_graph import ROOT

TESTS = ROOT / "tests"


def functions_of(path: str) -> set[str]:
    """Names of the test functions of a file below tests/."""
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def unknown(names: set[str]) -> set[str]:
    """Those of the matrix's tests that do not exist."""
    return {
        name
        for name in names
        for path, _, test in [name.partition("::")]
        if not (TESTS / path).exists() or test.partition("[")[0] not in functions_of(path)
    }


NAMED = {test for row in rows() for test in row.tests}


def test_each_row_names_tests_that_exist() -> None:
    assert all(row.tests for row in rows())
    assert unknown(NAMED) == set()


def test_each_fault_test_has_a_row() -> None:
    there = {
        f"faults/{path.name}::{test}"
        for path in (TESTS / "faults").glob("test_*.py")
        for test in functions_of(f"faults/{path.name}")
    }
    assert there - {name.partition("[")[0] for name in NAMED} == set()


def test_the_page_is_made_of_the_matrix() -> None:
    page = PAGE.read_text("utf-8")
    assert generated(page, PARTS) == page, "run `make docs`: python -m tests.support.faults_page"


@pytest.mark.nightly
def test_parameters_are_those_that_pytest_collects() -> None:
    """Of a test that some row names with a parameter, each parameter has a row."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "faults", "tests/faults"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {line.removeprefix("tests/") for line in collected.splitlines() if "::" in line}
    with_parameters = {name for name in NAMED if "[" in name and name.startswith("faults/")}
    by_parameter = {name.partition("[")[0] for name in with_parameters}
    assert with_parameters == {name for name in there if name.partition("[")[0] in by_parameter}
