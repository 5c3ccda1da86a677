"""`python -m tools.bench.instructions --against FOLDER[:MODULE]`: instructions per request, two commits compared.

Counted by valgrind's callgrind, in user space: the same on a loaded machine, to about 1 %, where CPU time differs by
40 % from run to run. It knows neither caches nor the kernel: a change that saves a system call does not show here.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pidgate.load.exchanges import fetch, produce
from pidgate.load.plan import Address
from pidgate.protocol.record_batch import RecordBatch
from tools.bench.compiled import compiled, environment
from tools.bench.loads.client import TIMESTAMP_MS, LoadError, connect, create_topic, new_producer_id
from tools.bench.targets import GENEROUS, Tree
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

_PATIENCE_S: Final = 240.0
_IDLE_S: Final = 5.0
_BULK_RECORD_BYTES: Final = 700_000
Counts = dict[str, float]


class _Counter:
    """Callgrind's counters of a process that runs under it."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder

    def count(self, work: Callable[[], None]) -> tuple[int, float]:
        """Return the instructions while `work` ran, and its seconds."""
        begun = time.monotonic()
        self._control("-i", "on")
        work()
        self._control("-i", "off")
        seconds = time.monotonic() - begun
        self._control("-d")  # written to a file, and set to zero
        newest = max(self._folder.glob("counts.*.*"), key=lambda file: int(file.suffix[1:]))
        (total,) = re.findall(r"^totals: (\d+)", newest.read_text(), re.MULTILINE)
        return int(total), seconds

    def _control(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self._pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)


def _requests(address: Address, topic_id: bytes) -> Mapping[str, tuple[int, Callable[[], None]]]:
    """Return what is counted: a name of bench's scenarios, how often, and one of it."""
    connection = connect(address, timeout_s=_PATIENCE_S)

    def produce_to(partition: int, record_bytes: int) -> Callable[[], None]:
        producer_id, batch = new_producer_id(connection), RecordBatch([os.urandom(record_bytes)])
        sent = 0

        def send() -> None:
            nonlocal sent
            stamped = batch.stamped(producer_id, 0, sent, TIMESTAMP_MS)
            check(connection.run(produce(topic_id, [(partition, stamped)], acks=1)).error_code)
            sent += 1

        return send

    def check(error_code: int) -> None:
        if error_code:
            raise LoadError(f"error code {error_code}")

    def a_connection() -> None:
        with connect(address, timeout_s=_PATIENCE_S) as one:
            new_producer_id(one)

    return {
        "01 small requests": (1000, produce_to(0, 100)),
        "02 bulk produce": (60, produce_to(1, _BULK_RECORD_BYTES)),
        "04 bulk fetch": (60, lambda: check(connection.run(fetch(topic_id, {1: 0})).error_code)),
        "06 connections": (60, a_connection),
    }


def _counted(tree: Tree, broker: str, topic_id: bytes) -> Counts:
    """Return the instructions per request of each kind, less what the gateway does of itself in that time."""
    folder = guard.temporary_directory("instructions-")
    valgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
    gateway = GatewayProcess(
        broker,
        quotas=GENEROUS,
        settings={"log_level": "warning"},
        ready_within_s=_PATIENCE_S,
        environment=environment(tree.folder),
        module=tree.module,
        run_by=(*valgrind, f"--callgrind-out-file={folder}/counts.%p"),
    )
    try:
        with gateway:
            assert gateway.pid is not None
            counter = _Counter(gateway.pid, folder)
            idle, seconds = counter.count(lambda: time.sleep(_IDLE_S))
            idle_per_s = idle / seconds
            counts = {}
            address = ("127.0.0.1", gateway.first_node_port + 1)
            for name, (times, request) in _requests(address, topic_id).items():
                _repeat(times // 5, request)
                instructions, seconds = counter.count(partial(_repeat, times, request))
                counts[name] = (instructions - idle_per_s * seconds) / times
            return counts
    finally:
        guard.remove_directory(folder)


def _repeat(times: int, request: Callable[[], None]) -> None:
    for _ in range(times):
        request()


def main() -> int:
    """Count both and print a table; 2 without valgrind."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.instructions", description=__doc__)
    parser.add_argument("--against", metavar="FOLDER[:MODULE]", type=Tree.parse, required=True)
    other = parser.parse_args().against
    if shutil.which("callgrind_control") is None:
        print("no valgrind: apt-get install valgrind", file=sys.stderr)
        return 2
    with Cluster(ClusterSpec()) as cluster:
        broker = cluster.bootstrap_servers()
        topic_id = create_topic(next(iter(cluster.addresses().values())), "instructions", 2, {})
        before, after = _counted(other, broker, topic_id), _counted(Tree(compiled()), broker, topic_id)
    print("| per request | the other commit | this commit | ratio |\n| --- | ---: | ---: | ---: |")
    for name, count in before.items():
        print(f"| {name} | {count:,.0f} | {after[name]:,.0f} | {after[name] / count:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
