"""A failed test is told of, whatever its text holds."""

from enum import IntEnum
from pathlib import Path
from typing import Any

import execnet
import pytest

from tests.support.reports import sendable


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "part", ["user \udc80", Colour.RED, Path("a"), {Colour.RED: ["\ud800", (Colour.RED,)]}]
)
def test_what_cannot_be_sent_is_sent_as_text(part: Any) -> None:
    report = {
        "outcome": "failed",
        "duration": 0.5,
        "longrepr": part,
        "sections": [("log", "x")],
        "lines": None,
    }
    with pytest.raises(execnet.DumpError):
        execnet.dumps(report)
    sent = execnet.loads(execnet.dumps(sendable(report)))
    assert sent.pop("longrepr")
    assert sent == {"outcome": "failed", "duration": 0.5, "sections": [["log", "x"]], "lines": None}


def test_another_report_is_sent_as_it_is() -> None:
    report = {"sections": [("log", "x")]}
    assert sendable(report) is report
