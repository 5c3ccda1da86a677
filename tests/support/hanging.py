"""The command pidgate, with an event loop that hangs for a while at each SIGUSR1. HANG_S: for how long.

With HANG_CHECK_S the thread beside the loop looks that often, so that a test is short.
"""

from __future__ import annotations

import os
import signal
import time

from pidgate.__main__ import main
from pidgate.gateway.admin import hang_watch

HANG_S = float(os.environ.get("HANG_S", "10"))


def hang(*_: object) -> None:
    time.sleep(HANG_S)


if __name__ == "__main__":
    hang_watch.CHECK_S = float(os.environ.get("HANG_CHECK_S", hang_watch.CHECK_S))  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, hang)
    main()
