"""What is kept of a night: the closing lines, and all that was printed of each first failure."""

from pathlib import Path

from tests.support.nightly import BY_NIGHT, failures_of, keep, summary_of

PRINTED = """\
============================= test session starts ==============================
tests/x.py .F.E                                                          [100%]

==================================== ERRORS ====================================
_____________________________ ERROR at setup of test_e _________________________
no broker
=================================== FAILURES ===================================
____________________________________ test_f ____________________________________
>       assert 1 == 2
----------------------------- Captured stdout call -----------------------------
=== a line of the test's own ===
============================= slowest 10 durations =============================
1.00s call     tests/x.py::test_f
=========================== short test summary info ============================
FAILED tests/x.py::test_f - assert 1 == 2
ERROR tests/x.py::test_e - no broker
==================== 1 failed, 2 passed, 1 error in 1.00s ======================
""".splitlines(keepends=True)


def test_the_summary_ends_with_the_closing_line() -> None:
    lines = summary_of(PRINTED)
    assert lines[-1] == "1 failed, 2 passed, 1 error in 1.00s"
    assert [line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))] == [
        "FAILED tests/x.py::test_f",
        "ERROR tests/x.py::test_e",
    ]
    assert summary_of([]) == [""]


def test_all_that_was_printed_of_failures_is_kept(tmp_path: Path) -> None:
    failures = failures_of(PRINTED)
    for printed in ("no broker", "assert 1 == 2", "a line of the test's own"):
        assert printed in failures
    assert "test session starts" not in failures
    assert keep(failures, "faults", "0123abc with changes", tmp_path / ".nightly") == (
        ".nightly/faults-0123abc-with-changes.txt"
    )
    assert (tmp_path / ".nightly" / "faults-0123abc-with-changes.txt").read_text() == failures


def test_nobody_has_a_second_try_within_a_run() -> None:
    assert "--force-reruns=0" in BY_NIGHT
