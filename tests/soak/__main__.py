"""`make soak HOURS=2`: a gateway under mixed clients for so long; exit code 1 when something grew, was lost or failed.

Writes its samples as they come to tools/bench/results/<date>-soak.csv, and at the end the verdict beside them as JSON.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.soak.plan import SoakPlan
from tests.soak.running import soak
from tools.bench.report import RESULTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--leak", type=float, default=0.0, help="MB an hour to be leaked, to see it caught")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = SoakPlan(
        hours=options.hours,
        leak_mb_per_h=options.leak,
        folder=options.folder,
    )
    return 0 if soak(plan, lambda line: print(line, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
