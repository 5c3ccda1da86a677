"""On the path of a Python process: it finds no lanes, as where there was no C compiler."""

import sys

sys.modules["pidgate.gateway.lane._lane"] = None  # type: ignore[assignment]
