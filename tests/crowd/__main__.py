"""`make crowd MINUTES=60`: 2,000 users with 20,000 connections and rogues, through a reload, a restore and a fail-over.

Exit code 1 when a record was lost, doubled or reordered, a user within its quota refused, or a rogue not held. Writes
its samples as they come to tools/bench/results/<date>-crowd.csv, and the verdict beside them as JSON.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.crowd.breaking import break_all
from tests.crowd.plan import CrowdPlan
from tests.crowd.running import play
from tools.bench.report import RESULTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crowd", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--break", dest="breaks", action="store_true", help="how much one gateway carries")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.breaks:
        break_all(options.folder, lambda line: print(line, flush=True))
        return 0
    plan = CrowdPlan(minutes=options.minutes, users=options.users)
    return 0 if play(plan, options.folder, lambda line: print(line, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
