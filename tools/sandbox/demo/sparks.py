"""A sparkline: values over time as one line of text."""

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*%#"


def spark(
    times: Sequence[float],
    values: Sequence[int],
    *,
    cells: int,
    until: float,
    top: int,
    ascii_only: bool = False,
) -> str:
    """Return the latest value in each of `cells` equal spans of 0 to `until`; blank after the last one.

    `times` ascend; values from `top` on fill their cell.
    """
    marks = _ASCII if ascii_only else _BLOCKS
    line = ""
    known = 0
    latest: int | None = None
    for cell in range(cells):
        end = until * (cell + 1) / cells
        while known < len(times) and times[known] < end:
            latest = values[known]
            known += 1
        if latest is None or (known == len(times) and times[-1] < end - until / cells):
            line += " "
        else:
            line += marks[min(len(marks) - 1, latest * len(marks) // max(top, 1))]
    return line
