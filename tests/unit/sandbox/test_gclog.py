"""Lines as the JVMs in use write them."""

import pytest

from tools.sandbox.gclog import HeapSample, heap_samples

SERIAL = "[1.403s] GC(4) Pause Young (Allocation Failure) 79M->26M(247M) 9.035ms"
SERIAL_FULL = "[1.001s] GC(2) Pause Full (Metadata GC Threshold) 67M->11M(247M) 21.1ms"
G1 = "[0.512s] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 23M->5M(64M) 3.219ms"
COMMA = "[12,5s] GC(9) Pause Full (G1 Compaction Pause) 96M->95M(96M) 88,1ms"


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        (SERIAL, HeapSample(1.403, 79, 26, 247, full=False)),
        (SERIAL_FULL, HeapSample(1.001, 67, 11, 247, full=True)),
        (G1, HeapSample(0.512, 23, 5, 64, full=False)),
        (COMMA, HeapSample(12.5, 96, 95, 96, full=True)),
    ],
)
def test_pauses_are_samples(line: str, sample: HeapSample) -> None:
    assert heap_samples([line]) == [sample]


@pytest.mark.parametrize(
    "line",
    [
        "[0.011s] Using Serial",
        "[0.512s] GC(3) Concurrent Mark Cycle 12.3ms",
        "[0.512s] GC(3) Pause Remark",
        "",
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert heap_samples([line, SERIAL]) == heap_samples([SERIAL])
