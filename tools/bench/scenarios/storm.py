"""A storm of refusals beside good producers: what it does to them, and whether anything of it reaches the broker.

1,000 requests/s of producers whose ids are known; in a storm 500 connections/s, each with an id of its own that is
refused (at most 500 ms, `max_throttle`), comes back, is refused again and gives up: 1,000 refusals/s. In a third phase
the good ones go past the gateway while the storm goes on: what broker, storm and load do to each other on their core is
not the gateway's doing; nor is a request that the load itself has sent late. Afterwards the storm's topic is read from
the broker: it must hold no id that was never let in.

Twice: on a cluster where nobody logs in, all being one user that is over its quota, and on one where good and bad are
two users, so that every connection of the storm has to log in first. The broker does that, and it costs the broker
more than all the rest. There a relay stands before the broker and notes how long each of the good producers' requests
takes behind it: what the broker's p99 grows by in the storm is taken off what they see.

Each run has a gateway of its own, which remembers nothing of the others: a user's 50,001st refused id within minutes
would not be refused but closed on.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pidgate.load.plan import Address, Login
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
from tools.bench.loads.client import Through, connect, create_topic, metadata_of
from tools.bench.loads.process import measured_by, started
from tools.bench.machine import pin
from tools.bench.quantities import Measured, measured_as, p50_ms, p99_ms
from tools.bench.scenario import RETENTION
from tools.bench.scenarios import lateness
from tools.bench.statistics import percentile
from tools.bench.targets import Proxy, TargetFailed, sockets_listening
from tools.sandbox.demo.segments import read_topic
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_port
from tools.sandbox.spec import PLAINTEXT, PROXIED, SASL_PLAINTEXT, SUPER_USER

CALM: Final = "calm"
STORM: Final = "storm"
PAST: Final = "storm, past the gateway"

_GOOD: Final = Login("alice", "alice-secret")
_BAD: Final = Login("bob", "bob-secret")
_REFUSALS: Final = ("pidgate_requests_refused_total", "pidgate_requests_kept_in_order_total")
_ADMITTED: Final = "pidgate_producer_ids_admitted_total"
_STORM_NICE: Final = 10
_PATIENCE_S: Final = 10.0


class _Stage:
    """Broker and topics of all runs, and which ids were let in."""

    def __init__(self, cluster: Cluster, plan: Plan, conditions: Conditions) -> None:
        self._cluster = cluster
        self._plan = plan
        self._placement = conditions.placement
        self._logs_in = bool(plan["logs_in"])
        self._protocol = SASL_PLAINTEXT if self._logs_in else PLAINTEXT
        self._partitions = int(plan["partitions"])
        self._topics = {
            name: create_topic(cluster.nodes[1], name, self._partitions, dict(RETENTION))
            for name in ("bench-good", "bench-storm")
        }
        self._answered: list[tuple[int, int]] = []
        """Return what the relay of the latest gateway has noted."""
        self._ids_used = self._gateways = 0
        self._admitted: set[int] = set()

    @contextmanager
    def gateway(self) -> Iterator[GatewayProcess]:
        """A fresh one, whose events topic is its own."""
        rate = self._plan["bad_rate"]
        rates: dict[str, Any] = {"default": {"producer_ids_rate": 100_000 if self._logs_in else rate}}
        if self._logs_in:
            rates["users"] = {_BAD.user: {"producer_ids_rate": rate}}
        self._gateways += 1
        with TemporaryDirectory(prefix="pidgate-bench-") as folder, self._broker(Path(folder)) as servers:
            gateway = compiled_gateway(
                servers,
                {
                    "mode": "enforce",
                    "producer_ids": {"max_throttle": f"{self._plan['max_throttle_ms']:.0f}ms"},
                    **rates,
                },
                events={"topic": f"bench-events-{self._gateways}"},
                log_level="warning",
                **(self._own_client(Path(folder)) if self._logs_in else {}),
            )
            with gateway:
                give_core(gateway, self._placement)
                _let_it_learn_the_broker(("127.0.0.1", gateway.port), _GOOD if self._logs_in else None)
                yield gateway

    @contextmanager
    def _broker(self, folder: Path) -> Iterator[str]:
        """Bootstrap servers of the gateway: the relay's where the plan has one."""
        if not self._plan["relay"]:
            yield self._cluster.bootstrap_servers(self._protocol)
            return
        port, notes = self._cluster.spec.proxied_port, folder / "answered.json"
        command = [sys.executable, "-m", "tools.bench.relay", f"127.0.0.1:{port}"]
        command += [self._cluster.bootstrap_servers(PROXIED), str(notes)]
        with Proxy(command, folder / "relay.log") as relay:
            pin(relay.pid or 0, self._placement.rest)
            _wait_until(lambda: sockets_listening(port) > 0, lambda: relay.is_alive, "the relay listens")
            yield f"127.0.0.1:{port}"
            relay.signal(signal.SIGTERM)
            if relay.wait(_PATIENCE_S) is None:
                raise TargetFailed(f"the relay does not end:\n{relay.log_tail()}")
        self._answered = json.loads(notes.read_text())

    def add_broker_times(self, calm: Measured, storm: Measured) -> None:
        """Add to the phases of the latest gateway what its broker took in them."""
        for measured in (calm, storm):
            from_ns = measured["ended_ns"] - self._plan["measure_s"] * 1e9
            took_ns = sorted(ns for at_ns, ns in self._answered if from_ns <= at_ns <= measured["ended_ns"])
            measured["broker_p99_ms"] = percentile(took_ns, 0.99) / 1e6
        calm["broker_adds_ms"] = 0
        storm["broker_adds_ms"] = max(0, storm["broker_p99_ms"] - calm["broker_p99_ms"])

    def run(self, gateway: GatewayProcess, phase: str) -> Measured:
        """One phase; in a storm it has to blow all the time that counts."""
        through = ("127.0.0.1", gateway.first_node_port + 1)
        address = self._cluster.addresses(self._protocol)[1] if phase == PAST else through
        known = self._plan["clients"] if phase != PAST else 0
        before = lateness.now(gateway)
        known += before.metrics.value(_ADMITTED)
        with self._good_producers(address, gateway) as load:
            if phase == CALM:
                measured = _measured(load, gateway)
            else:
                # In a storm of the same user nobody would let them in.
                _wait_until(
                    lambda: gateway.metrics().value(_ADMITTED) >= known,
                    lambda: load.poll() is None,
                    "the good producers are let in",
                )
                with self._blowing(through) as storm:
                    measured = _measured(load, gateway)
                    measured |= self._ended(storm, gateway)
        after = lateness.now(gateway)
        measured["refusals_counted"] = sum(
            after.metrics.value(name) - before.metrics.value(name) for name in _REFUSALS
        )
        return measured | lateness.since(before, after)

    def refused_in_log(self) -> float:
        """Ids with records in the storm's topic that were never let in."""
        found = read_topic(self._cluster.directory / "node-1" / "data", "bench-storm").ids
        if not found >= self._admitted:
            raise TargetFailed(f"let in, but not in the log: {sorted(self._admitted - found)[:5]}")
        return float(len(found - self._admitted))

    def _own_client(self, folder: Path) -> dict[str, Any]:
        password_file = folder / "password"
        password_file.write_text(self._cluster.spec.users[SUPER_USER])
        login = {"mechanism": "PLAIN", "username": SUPER_USER, "password_file": str(password_file)}
        return {"own_client": login}

    def _good_producers(
        self, address: Address, gateway: GatewayProcess
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        keys = ("clients", "rate_per_s", "record_bytes", "warmup_s", "measure_s")
        plan = {key: self._plan[key] for key in keys} | {"partitions_each": 1, "records": 1, "acks": 1}
        login = _GOOD if self._logs_in else None
        through = Through(address, self._topics["bench-good"], login, gateway.pid)
        return started("produce", through, plan, self._placement)

    @contextmanager
    def _blowing(self, address: Address) -> Iterator[subprocess.Popen[str]]:
        plan = {key: self._plan[key] for key in ("connections_per_s", "tries")}
        plan |= {"partitions": self._partitions, "record_bytes": 100, "first": self._ids_used}
        through = Through(address, self._topics["bench-storm"], _BAD if self._logs_in else None)
        with started("storm", through, plan, self._placement) as storm:
            # It has to be there, not to be punctual: the good producers' clock must not wait for it.
            os.setpriority(os.PRIO_PROCESS, storm.pid, _STORM_NICE)
            yield storm

    def _ended(self, storm: subprocess.Popen[str], gateway: GatewayProcess) -> Measured:
        """End the storm; return what it was."""
        if storm.poll() is not None:
            raise TargetFailed(f"the storm ended early: {measured_by(storm)}")
        storm.terminate()
        told = measured_by(storm)
        self._ids_used += told["opened"]
        if told["failed"]:
            raise TargetFailed(
                f"{told['failed']} connections of the storm: {told['why']}\n{gateway.log_tail()}"
            )
        self._admitted |= set(told["admitted"])
        return {
            "storm_connections_per_s": told["opened"] / told["seconds"],
            "refusals_per_s": told["refusals"] / told["seconds"],
            "refusals": told["refusals"],
            "admitted": len(told["admitted"]),
        }


def _measured(load: subprocess.Popen[str], gateway: GatewayProcess) -> Measured:
    try:
        return {**measured_by(load), "ended_ns": time.monotonic_ns()}
    except TargetFailed as error:
        raise TargetFailed(f"{error}\n{gateway.log_tail()}") from error


def _wait_until(is_so: Callable[[], bool], goes_on: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > give_up_s or not goes_on():
            raise TargetFailed(f"not after {_PATIENCE_S:.0f} s, or ended: {what}")
        time.sleep(0.1)


def _measure(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {CALM: [], STORM: [], PAST: []}
    spec = broker_spec(sasl=bool(plan["logs_in"]), proxied_port=free_port() if plan["relay"] else 0)
    with broker_beside(conditions.placement, spec) as cluster:
        stage = _Stage(cluster, plan, conditions)
        with stage.gateway() as gateway:
            for _ in range(int(plan["warmup_storms"])):
                stage.run(gateway, PAST)  # compiles the broker's ways
        for run in range(1, conditions.runs + 1):
            with stage.gateway() as gateway:
                for phase, measured_runs in results.items():
                    measured = stage.run(gateway, phase)
                    measured_runs.append(measured)
                    conditions.say(f"storm run {run}/{conditions.runs} {phase:24} {_brief(measured)}")
            if plan["relay"]:
                stage.add_broker_times(results[CALM][-1], results[STORM][-1])
        refused_in_log = stage.refused_in_log()
        for measured in results[STORM]:
            measured["refused_in_log"] = refused_in_log
    return results


def _let_it_learn_the_broker(bootstrap: Address, login: Login | None) -> None:
    """Warm up: where clients log in a gateway learns the brokers from the first answer that names them."""
    with connect(bootstrap, login) as connection:
        metadata_of(connection, [])


def _cores(measured: Measured) -> float:
    return measured["cpu_s"] / measured["seconds"]


def _brief(measured: Measured) -> str:
    said = f"p50 {measured['p50_ms']:.2f} p99 {measured['p99_ms']:.2f} (sent late {measured['late_p99_ms']:.2f}) ms"
    said += f", gateway {_cores(measured):.2f} cores"
    if "refusals_per_s" in measured:
        said += f", {measured['refusals_per_s']:.0f} refusals/s, {measured['admitted']:.0f} let in"
    return said


_PLAN: Final = {
    "clients": 8,
    "rate_per_s": 1_000,
    "record_bytes": 1_024,
    "partitions": 8,
    "connections_per_s": 500,
    "tries": 2,
    "max_throttle_ms": 500,
    # The good producers of two phases and a few of the storm at once, then one in three minutes.
    "bad_rate": 20,
    "warmup_s": 4,
    "measure_s": 10,
    "warmup_storms": 3,
}

_COLUMNS: Final = (
    Column("p50 ms", p50_ms, 2),
    Column("p99 ms", p99_ms, 2),
    Column("p99.9 ms", measured_as("p999_ms"), 2),
    Column("sent late p99 ms", measured_as("late_p99_ms"), 2),
    Column("gateway's cores", _cores, 2),
    Column("its loop late ms", measured_as("late_ms"), 2),
    Column("without a core ms", measured_as("late_without_core_ms"), 2),
    Column("it waited for its core ms", measured_as("waited_for_core_ms"), 0),
    Column("connections/s", measured_as("storm_connections_per_s"), 0),
    Column("refusals/s", measured_as("refusals_per_s"), 0),
    Column("ids let in", measured_as("admitted"), 0),
)

_NOTHING_GETS_THROUGH: Final = (
    Goal(
        "refused ids with records in the broker's log",
        measured_as("refused_in_log"),
        "exactly",
        0,
        target=STORM,
    ),
    Goal("refusals", measured_as("refusals_per_s"), "at least", 900, "per second", target=STORM),
)

SCENARIO = Alone(
    number="10",
    name="storm",
    title="1,000 refusals/s and 500 new connections/s beside 1,000 good requests/s",
    kafka=NEWEST,
    plan={**_PLAN, "logs_in": 0, "relay": 0},
    quick={"warmup_s": 2, "measure_s": 2, "warmup_storms": 1},
    measure=_measure,
    columns=_COLUMNS,
    goals=(
        Goal("p99 of good producers", p99_ms, "at most", 2, target=STORM, than=CALM),
        *_NOTHING_GETS_THROUGH,
    ),
)

LOGS_IN = replace(
    SCENARIO,
    number="14",
    name="storm-logs-in",
    title="The same storm where each of its 500 connections/s logs in (SASL PLAIN)",
    plan={**_PLAN, "logs_in": 1, "relay": 1},
    columns=(*_COLUMNS, Column("broker's p99 ms", measured_as("broker_p99_ms"), 2)),
    goals=(
        Goal(
            "p99 of good producers, less what the broker adds",
            lambda measured: measured["p99_ms"] - measured["broker_adds_ms"],
            "at most",
            2,
            target=STORM,
            than=CALM,
        ),
        *_NOTHING_GETS_THROUGH,
    ),
)
"""SaslHandshake and SaslAuthenticate of each connection are the broker's to answer."""
