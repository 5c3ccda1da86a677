"""A leak inside the process that `pidgate run` starts first, for the soak that has to catch it: so many MB an hour.

Python imports a module of this name at its start, from a folder that the soak puts on the path; the gateway knows
nothing of it.
"""

import os
import sys
import threading
import time

MB_PER_H = "PIDGATE_TESTS_LEAK_MB_PER_H"
_PERIOD_S = 1.0
_leaked: list[bytes] = []


def _leak(bytes_per_s: float) -> None:
    began_s = time.monotonic()
    while True:
        time.sleep(_PERIOD_S)
        wanted = int((time.monotonic() - began_s) * bytes_per_s) - sum(map(len, _leaked))
        # Not bytes(n): pages of zeros that nobody wrote to are no memory.
        _leaked.append(b"\x5a" * max(0, wanted))


if "run" in sys.orig_argv and (_rate := float(os.environ.get(MB_PER_H, "0"))):
    threading.Thread(target=_leak, args=(_rate * 1e6 / 3600,), daemon=True).start()
