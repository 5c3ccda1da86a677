"""A storm of refusals beside good producers: what it does to them, and whether anything of it reaches the broker.

1,000 requests/s of a user within its quota; in the other half of each run 500 connections/s of a user far over its own,
each with an id that is refused (at most 500 ms, `max_throttle`), comes back, is refused again and gives up: 1,000
refusals/s. One gateway serves all runs. In a third phase the good ones go past the gateway while the storm goes on:
what broker, storm and load do to each other on their core is not the gateway's doing; nor is a request that the load
itself has sent late. Afterwards the storm's topic is read from the broker: it must hold no id that was never let in.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import lateness
from bench.alone import (
    Alone,
    Column,
    Conditions,
    Plan,
    Results,
    broker_beside,
    broker_spec,
    give_core,
    measured_as,
)
from bench.codec import MetadataRequest, MetadataResponse
from bench.cold_client import Address, ask, connect, create_topic, log_in
from bench.compiled import compiled, environment
from bench.goals import Goal
from bench.machine import Placement
from bench.quantities import Measured, p50_ms, p99_ms
from bench.scenario import RETENTION
from bench.targets import ROOT, TargetFailed
from bench.topic_content import producer_ids_in
from sandbox.gateway import GatewayProcess
from sandbox.jars import NEWEST
from sandbox.kafka import Cluster
from sandbox.spec import SASL_PLAINTEXT, SUPER_USER

CALM: Final = "calm"
STORM: Final = "storm"
PAST: Final = "storm, past the gateway"

_GOOD: Final = "alice:alice-secret"
_SECRET: Final = "storm-secret"
# A few at once, then one in six minutes.
_BAD_RATE: Final = 10
_STORM_NICE: Final = 10
_REFUSALS: Final = "pidgate_requests_refused_total"


class _Stage:
    """Broker, gateway and topics of all runs, and which ids were let in."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess, plan: Plan, conditions: Conditions) -> None:
        self.plan = plan
        self._placement = conditions.placement
        self._plain = cluster.nodes[1]
        self._partitions = int(plan["partitions"])
        self._topics = {
            name: create_topic(self._plain, name, self._partitions, dict(RETENTION))
            for name in ("bench-good", "bench-storm")
        }
        self._through = ("127.0.0.1", gateway.first_node_port + 1)
        self._past = cluster.addresses(SASL_PLAINTEXT)[1]
        self._gateway = gateway
        self._ids_used = self._storms = 0
        self._admitted: set[int] = set()

    def run(self, phase: str) -> Measured:
        """One phase; in a storm it has to blow all the time that counts."""
        address = self._past if phase == PAST else self._through
        if phase == CALM:
            return self._good_producers(address)
        before = self._gateway.metrics().value(_REFUSALS)
        with self._blowing() as storm:
            time.sleep(self.plan["ramp_s"])
            measured = self._good_producers(address)
            if storm.poll() is not None:
                raise TargetFailed(f"the storm ended early: {_told(storm)}")
            storm.terminate()
            told = _told(storm)
        self._ids_used += told["opened"]
        if told["failed"]:
            raise TargetFailed(
                f"{told['failed']} connections of the storm: {told['why']}\n{self._gateway.log_tail()}"
            )
        self._admitted |= set(told["admitted"])
        measured["storm_connections_per_s"] = told["opened"] / told["seconds"]
        measured["refusals_per_s"] = told["refusals"] / told["seconds"]
        measured["refusals"] = told["refusals"]
        measured["admitted"] = len(told["admitted"])
        measured["refusals_counted"] = self._gateway.metrics().value(_REFUSALS) - before
        return measured

    def refused_in_log(self) -> float:
        """Ids with records in the storm's topic that were never let in."""
        found = producer_ids_in(self._plain, self._topics["bench-storm"], self._partitions)
        if not found >= self._admitted:
            raise TargetFailed(f"let in, but not in the log: {sorted(self._admitted - found)[:5]}")
        return float(len(found - self._admitted))

    def _good_producers(self, address: Address) -> Measured:
        keys = ("producers", "rate_per_s", "record_bytes", "warmup_s", "measure_s")
        fields = {key: self.plan[key] for key in keys} | {"partitions_each": 1, "acks": 1}
        command = self._command("bench.load", "paced", _text(address), login=_GOOD, topic="bench-good")
        if self._gateway.pid:
            command += ["--watch", str(self._gateway.pid)]
        before = lateness.now(self._gateway)
        finished = subprocess.run(
            [*command, json.dumps(fields)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if finished.returncode:
            raise TargetFailed(f"{finished.stderr.strip()[-2000:]}\n{self._gateway.log_tail()}")
        measured: Measured = json.loads(finished.stdout)
        return measured | lateness.since(before, lateness.now(self._gateway))

    @contextmanager
    def _blowing(self) -> Iterator["subprocess.Popen[str]"]:
        fields = {
            "connections_per_s": self.plan["connections_per_s"],
            "tries": self.plan["tries"],
            "partitions": self._partitions,
            "record_bytes": 100,
        }
        login = f"{_storm_user(self._storms)}:{_SECRET}"
        self._storms += 1
        command = self._command(
            "bench.storm_load", _text(self._through), login=login, topic="bench-storm", first=self._ids_used
        )
        process = subprocess.Popen(
            [*command, json.dumps(fields)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # It has to be there, not to be punctual: the good producers' clock must not wait for it.
        os.setpriority(os.PRIO_PROCESS, process.pid, _STORM_NICE)
        try:
            yield process
        except BaseException:
            process.kill()
            process.wait()
            raise

    def _command(
        self, module: str, *arguments: str, login: str, topic: str, first: int | None = None
    ) -> list[str]:
        command = [sys.executable, "-m", module, *arguments, "--login", login]
        command += ["--topic-id", self._topics[topic].hex()]
        if first is not None:
            command += ["--first", str(first)]
        return [*command, *_on(self._placement)]


def _storm_user(number: int) -> str:
    """One for each storm: an id that is refused is remembered for minutes, and a user's 50,001st would not be refused
    but closed on.
    """
    return f"storm-{number}"


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _on(placement: Placement) -> Sequence[str]:
    return ["--cpus", ",".join(map(str, sorted(placement.rest)))] if placement.rest else []


def _told(storm: "subprocess.Popen[str]") -> dict[str, Any]:
    out, errors = storm.communicate(timeout=60)
    if storm.returncode:
        raise TargetFailed(f"the storm: {errors.strip()[-2000:]}")
    told: dict[str, Any] = json.loads(out)
    return told


def _measure(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {CALM: [], STORM: [], PAST: []}
    users = [_storm_user(number) for number in range(1 + 2 * conditions.runs)]
    spec = broker_spec(sasl=True)
    spec = replace(spec, users={**spec.users, **dict.fromkeys(users, _SECRET)})
    with (
        TemporaryDirectory(prefix="pidgate-bench-") as folder,
        broker_beside(conditions.placement, spec) as cluster,
    ):
        password_file = Path(folder) / "password"
        password_file.write_text(cluster.spec.users[SUPER_USER])
        login = {"mechanism": "PLAIN", "username": SUPER_USER, "password_file": str(password_file)}
        gateway = GatewayProcess(
            cluster.bootstrap_servers(SASL_PLAINTEXT),
            environment=environment(compiled()),
            quotas={
                "mode": "enforce",
                "producer_ids": {"max_throttle": f"{plan['max_throttle_ms']:.0f}ms"},
                "default": {"producer_ids_rate": 100_000},
                "users": {user: {"producer_ids_rate": _BAD_RATE} for user in users},
            },
            settings={
                "events": {"enabled": True},
                "own_client": {"sasl": login},
                "log": {"level": "warning"},
            },
        )
        with gateway:
            give_core(gateway, conditions.placement)
            _let_it_learn_the_broker(("127.0.0.1", gateway.port))
            stage = _Stage(cluster, gateway, plan, conditions)
            stage.run(STORM)  # compiles the broker's ways
            for run in range(1, conditions.runs + 1):
                for phase, measured_runs in results.items():
                    measured = stage.run(phase)
                    measured_runs.append(measured)
                    conditions.say(f"10 run {run}/{conditions.runs} {phase:24} {_brief(measured)}")
            refused_in_log = stage.refused_in_log()
            for measured in results[STORM]:
                measured["refused_in_log"] = refused_in_log
    return results


def _let_it_learn_the_broker(bootstrap: Address) -> None:
    """Where clients log in a gateway learns the brokers from the first answer that names them."""
    user, _, password = _GOOD.partition(":")
    with connect(bootstrap) as connection:
        log_in(connection, user, password)
        ask(connection, MetadataRequest(version=12, topics=[]), MetadataResponse)


def _cores(measured: Measured) -> float:
    return measured["cpu_s"] / measured["seconds"]


def _brief(measured: Measured) -> str:
    said = f"p50 {measured['p50_ms']:.2f} p99 {measured['p99_ms']:.2f} (sent late {measured['late_p99_ms']:.2f}) ms"
    said += f", gateway {_cores(measured):.2f} cores"
    if "refusals_per_s" in measured:
        said += f", {measured['refusals_per_s']:.0f} refusals/s, {measured['admitted']:.0f} let in"
    return said


SCENARIO = Alone(
    number="10",
    name="storm",
    title="1,000 refusals/s and 500 new connections/s beside 1,000 good requests/s",
    kafka=NEWEST,
    plan={
        "producers": 8,
        "rate_per_s": 1_000,
        "record_bytes": 1_024,
        "partitions": 8,
        "connections_per_s": 500,
        "tries": 2,
        "max_throttle_ms": 500,
        "warmup_s": 2,
        "measure_s": 10,
        "ramp_s": 2,
    },
    quick={"warmup_s": 1, "measure_s": 2},
    measure=_measure,
    columns=(
        Column("p50 ms", p50_ms, 2),
        Column("p99 ms", p99_ms, 2),
        Column("p99.9 ms", measured_as("p999_ms"), 2),
        Column("sent late p99 ms", measured_as("late_p99_ms"), 2),
        Column("gateway's cores", _cores, 2),
        Column("its loop late ms", measured_as("late_ms"), 2),
        Column("it waited for its core ms", measured_as("waited_for_core_ms"), 0),
        Column("connections/s", measured_as("storm_connections_per_s"), 0),
        Column("refusals/s", measured_as("refusals_per_s"), 0),
        Column("ids let in", measured_as("admitted"), 0),
    ),
    goals=(
        Goal(of="p99 of good producers", quantity=p99_ms, bound="at most", limit=2, target=STORM, than=CALM),
        Goal(
            of="refused ids with records in the broker's log",
            quantity=measured_as("refused_in_log"),
            bound="exactly",
            limit=0,
            target=STORM,
        ),
        Goal(
            of="refusals",
            quantity=measured_as("refusals_per_s"),
            bound="at least",
            limit=900,
            unit="per second",
            target=STORM,
        ),
    ),
)
