"""The wall clock of a gateway's processes, moved while they run: as NTP, an operator or a restored snapshot does."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.inside_clock.sitecustomize import FILE, LAYOUT

INSIDE = Path(__file__).parent / "inside_clock"


class MovedClock:
    """Give `environment` to a GatewayProcess; `jump` moves its clock by so many ms from where it is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._ahead_ms = 0
        self._file.write_bytes(LAYOUT.pack(0))

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(INSIDE), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
        return {**os.environ, "PYTHONPATH": path, FILE: str(self._file)}

    def jump(self, by_ms: int) -> None:
        self._ahead_ms += by_ms
        # In place: the processes have mapped the file.
        with self._file.open("r+b") as file:
            file.write(LAYOUT.pack(self._ahead_ms * 1_000_000))
