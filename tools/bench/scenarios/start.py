"""Start: from the process to its listeners, and to the cluster's first answer.

`pidgate run` with a file, events and metrics on, before a real broker; each start is a new process, each is stopped
before the next. The first one makes the events topic and counts for nothing; the others restore their state from it.
"""

import socket
import time
from typing import Final

from tools.bench.alone import (
    Alone,
    Column,
    Conditions,
    Plan,
    Results,
    broker_beside,
    broker_spec,
    compiled_gateway,
    give_core,
)
from tools.bench.goals import Goal
from tools.bench.quantities import Measured, measured_as
from tools.bench.targets import TargetFailed
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST

_LOOK_EVERY_S: Final = 0.002
_PATIENCE_S: Final = 20.0


def _measure(plan: Plan, conditions: Conditions) -> Results:
    starts = []
    with (
        broker_beside(conditions.placement, broker_spec()) as cluster,
        compiled_gateway(cluster.bootstrap_servers()) as gateway,
    ):
        gateway.stop()
        for number in range(1, int(plan["starts"]) + 1):
            starts.append(_one_start(gateway, conditions))
            said = ", ".join(f"{name} {seconds:.3f}" for name, seconds in starts[-1].items())
            conditions.say(f"12 start {number}: {said}")
    return {"pidgate": starts}


def _one_start(gateway: GatewayProcess, conditions: Conditions) -> Measured:
    reached_before = len(gateway.log_events("cluster_reached"))
    began_s = time.monotonic()
    gateway.start(wait=False)
    give_core(gateway, conditions.placement)
    measured = {}
    while "reached_s" not in measured:
        if time.monotonic() - began_s > _PATIENCE_S:
            raise TargetFailed(f"not started after {_PATIENCE_S:.0f} s:\n{gateway.log_tail()}")
        time.sleep(_LOOK_EVERY_S)
        if "listening_s" not in measured:
            if _is_listening(gateway.port):
                measured["listening_s"] = time.monotonic() - began_s
        elif len(gateway.log_events("cluster_reached")) > reached_before:
            measured["reached_s"] = time.monotonic() - began_s
    gateway.wait_until_ready()
    measured["ready_s"] = time.monotonic() - began_s
    gateway.stop()
    return measured


def _is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


SCENARIO = Alone(
    number="12",
    name="start",
    title="Start: `pidgate run`, events and metrics on",
    kafka=NEWEST,
    plan={"starts": 10},
    quick={"starts": 3},
    measure=_measure,
    columns=(
        Column("listening s", measured_as("listening_s"), 3),
        Column("cluster reached s", measured_as("reached_s"), 3),
        Column("ready s", measured_as("ready_s"), 3),
    ),
    goals=(
        Goal("listening", measured_as("listening_s"), "at most", 0.5, "s"),
        Goal("cluster reached", measured_as("reached_s"), "at most", 1, "s"),
    ),
)
