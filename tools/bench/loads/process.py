"""A load in a process of its own: `started` runs it, with its plan as one JSON argument.

It prints one JSON object. Any error of the broker or of the connection ends it with exit code 1 and the reason on
stderr.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pidgate import open_files
from tools.bench.loads import librdkafka, played
from tools.bench.loads.client import FAILURES, Through
from tools.bench.loads.idle import IdlePlan, run_idle
from tools.bench.loads.java import JavaPlan, run_java_fetch, run_java_produce
from tools.bench.loads.lives import LivesPlan, run_lives
from tools.bench.loads.metadata import MetadataPlan, run_metadata
from tools.bench.loads.mixed import MixedPlan, run_mixed
from tools.bench.loads.played import LoadPlan, StormPlan
from tools.bench.loads.unfinished import UnfinishedPlan, run_unfinished
from tools.bench.machine import Placement
from tools.bench.targets import ROOT, TargetFailed

KINDS: Final[Mapping[str, tuple[type[Any], Callable[[Through, Any], Mapping[str, Any]]]]] = {
    "produce": (LoadPlan, played.run_produce),
    "fetch": (LoadPlan, played.run_fetch),
    "connect": (LoadPlan, played.run_connect),
    "lives": (LivesPlan, run_lives),
    "storm": (StormPlan, played.run_storm),
    "idle": (IdlePlan, run_idle),
    "unfinished": (UnfinishedPlan, run_unfinished),
    "mixed": (MixedPlan, run_mixed),
    "metadata": (MetadataPlan, run_metadata),
    "librdkafka-paced": (LoadPlan, librdkafka.run_paced),
    "librdkafka-produce": (LoadPlan, librdkafka.run_produce),
    "librdkafka-fetch": (LoadPlan, librdkafka.run_fetch),
    "java-produce": (JavaPlan, run_java_produce),
    "java-fetch": (JavaPlan, run_java_fetch),
}
"""Of each kind its plan, and the function that runs it."""

_RUN_WITHIN_S: Final = 1_800.0


@contextmanager
def started(
    kind: str, through: Through, plan: Mapping[str, float], placement: Placement
) -> Iterator[subprocess.Popen[str]]:
    """Run a load, on the processors of loads, during the block; it is killed if the block fails."""
    told = {"kind": kind, "through": through.as_json(), "plan": dict(plan), "cpus": [*(placement.rest or ())]}
    command = [sys.executable, "-m", __spec__.name, json.dumps(told)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    except BaseException:
        process.kill()
        process.wait()
        raise


def measured_by(load: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a load and return what it measured. Raises TargetFailed."""
    out, errors = load.communicate(timeout=_RUN_WITHIN_S)
    if load.returncode:
        raise TargetFailed(f"the load failed: {errors.strip()[-2000:]}")
    measured: dict[str, Any] = json.loads(out)
    return measured


def main() -> int:
    """Run one load and print what it measured."""
    told = json.loads(sys.argv[1])
    if told["cpus"]:
        os.sched_setaffinity(0, told["cpus"])
    open_files.allow_most()
    plan, run = KINDS[told["kind"]]
    try:
        measured = run(Through.of_json(told["through"]), plan(**told["plan"]))
    except FAILURES as error:
        print(error, file=sys.stderr)
        return 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({**measured, "load_cpu_s": used.ru_utime + used.ru_stime}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
