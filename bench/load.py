"""The load, as a process of its own: `python -m bench.load KIND ADDRESS [--topic-id HEX] [--watch PID] PLAN`.

KIND is paced, produce, fetch, idle or fresh; PLAN is the plan's fields as JSON. Prints one JSON object.
Any error of the broker or of the connection ends it with exit code 1 and the reason on stderr.
"""

import argparse
import json
import os
import resource
import sys

from bench.bulk_load import BulkPlan, run_bulk_fetch, run_bulk_produce
from bench.cold_client import FAILURES, parse_login
from bench.fresh_load import FreshPlan, run_fresh
from bench.idle_load import IdlePlan, run_idle
from bench.paced_load import PacedPlan, run_paced
from pidgate import open_files, units


def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Run one load and return what it measured."""
    address = units.address(arguments.address)
    topic_id = bytes.fromhex(arguments.topic_id)
    fields = json.loads(arguments.plan)
    match arguments.kind:
        case "paced":
            return run_paced(address, topic_id, PacedPlan(**fields), arguments.watch, arguments.login)
        case "produce":
            return run_bulk_produce(address, topic_id, BulkPlan(**fields), arguments.watch)
        case "fetch":
            return run_bulk_fetch(address, topic_id, BulkPlan(**fields), arguments.watch)
        case "fresh":
            return run_fresh(address, topic_id, FreshPlan(**fields), arguments.watch)
        case _:
            return run_idle(address, IdlePlan(**fields), arguments.watch)


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("kind", choices=("paced", "produce", "fetch", "idle", "fresh"))
    parser.add_argument("address", help="host:port, used whatever Metadata says")
    parser.add_argument("--topic-id", default="", help="32 hex digits")
    parser.add_argument(
        "--login", type=parse_login, metavar="USER:PASSWORD", help="SASL PLAIN; of paced only"
    )
    parser.add_argument("--watch", type=int, help="pid of the process between, whose cost is read")
    parser.add_argument("--cpus", default="", help="processors to run on: 0,2")
    parser.add_argument("plan")
    arguments = parser.parse_args()
    if arguments.cpus:
        os.sched_setaffinity(0, set(map(int, arguments.cpus.split(","))))
    open_files.allow_most()
    try:
        measured = run(arguments)
    except FAILURES as error:
        print(f"bench.load: {error}", file=sys.stderr)
        return 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({**measured, "load_cpu_s": used.ru_utime + used.ru_stime}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
