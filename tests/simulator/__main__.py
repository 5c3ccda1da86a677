"""python -m tests.simulator SEEDS [FIRST] plays so many schedules; --seed SEED tells the story of one.

A schedule that fails is told at its shortest.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator.playing import play
from tests.simulator.searching import failing, report
from tests.simulator.themes import aimed


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 1, if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=1_000, help="how many schedules to play")
    parser.add_argument("first", nargs="?", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="tell the story of one seed; of a shorter one, if it fails")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        schedule = aimed(options.seed)
        print(report(schedule))
        return int(play(schedule).violation != "")
    began_s = time.monotonic()
    found = failing(range(options.first, options.first + options.seeds))
    seconds = time.monotonic() - began_s
    if found is None:
        print(f"{options.seeds} schedules from seed {options.first} on, nothing wrong, {seconds:.0f} s")
        return 0
    print(report(found))
    return 1


if __name__ == "__main__":
    sys.exit(main())
