"""Two gateways, of which one vanishes with its machine: its address answers nothing any more.

Run in a network namespace: unshare -n python -m tests.support.machine_gone one_name|balancer. Prints as JSON the
longest pause in acknowledgements by family, in s.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.faults.test_gateway_gone import NODES, balancer, one_name
from tests.support.outage import Outage
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

FIRST: Final = "10.77.77.1"
SECOND: Final = "10.77.77.2"
WITHIN_S: Final = 120.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def set_up() -> None:
    """Both addresses are of this machine; what goes to the device `gone` is swallowed."""
    ip("link", "set", "lo", "up")
    for address in (FIRST, SECOND):
        ip("addr", "add", f"{address}/32", "dev", "lo")
    ip("link", "add", "gone", "type", "veth", "peer", "name", "swallows")
    ip("link", "set", "swallows", "up")
    ip("link", "set", "gone", "up")


def vanish() -> None:
    ip("addr", "del", f"{FIRST}/32", "dev", "lo")
    ip("neigh", "add", FIRST, "lladdr", "02:00:00:00:00:01", "dev", "gone", "nud", "permanent")
    ip("route", "add", f"{FIRST}/32", "dev", "gone", "src", SECOND)


def main(way_of: str) -> None:
    """Print the pauses."""
    set_up()
    with ExitStack() as stack:
        brokers = stack.enter_context(Cluster(ClusterSpec(node_ids=NODES)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make = {"one_name": one_name, "balancer": balancer}[way_of]
        way = make(brokers, "__machine-gone", folder, stack, FIRST, SECOND)
        first, second = way.gateways
        stack.enter_context(first)
        outage = Outage(brokers.bootstrap_servers(), way.servers, "machine-gone", way.run_by)
        stack.enter_context(outage)
        stack.enter_context(second)

        def fault() -> None:
            vanish()
            first.signal(signal.SIGSTOP)  # its admin address is another one here, and answers nothing either

        pauses = outage.pauses(fault, WITHIN_S)
        print(json.dumps({"pauses": pauses, "failed": outage.check(), "missing": outage.missing}))


if __name__ == "__main__":
    main(sys.argv[1])
