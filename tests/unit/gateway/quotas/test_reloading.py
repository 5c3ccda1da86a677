"""A configuration file that is read again: what takes effect, what waits, and what a bad one does (nothing)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from pidgate.gateway.config.loading import load, parse
from pidgate.gateway.config.reloadable import differences, taken_over
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.metrics.collectors import ReloadCollector
from pidgate.gateway.quotas import reloading
from pidgate.gateway.quotas.reloading import Promotion, Reloading, promotions
from pidgate.quota.admission import Admission
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.settings import Mode, Quotas
from tests.support.rules import rule
from tests.unit.quota.world import World, batch, seeds
from tools.sandbox.ports import free_block

CLUSTER = "cluster: {bootstrap_servers: [127.0.0.1:19092]}\n"
OBSERVING = CLUSTER + "quotas: {mode: observe, default: {producer_ids_rate: 10}}\n"
ENFORCING = CLUSTER + "quotas: {mode: enforce, default: {producer_ids_rate: 10}}\n"
RAISED = CLUSTER + "quotas: {mode: enforce, default: {producer_ids_rate: 40}}\n"

MANY_ALIASES = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
"""200 million values in nine lines."""


# ---- what takes effect ---------------------------------------------------------------------------------

EVERYTHING_SET = """\
cluster: {name: other, bootstrap_servers: [127.0.0.1:29092]}
gateway_id: other
own_client: {mechanism: PLAIN, username: me, password_file: /run/hunter2}
listeners: [{bind: 127.0.0.1:9999}, {bind: 127.0.0.1:7999, node_ports: {first: 8300}}]
quotas:
  mode: enforce
  producer_ids:
    {window: 2h, burst: 2.0, remember: 12h, transactional: enforce, grace: 5m, max_throttle: 5s,
     max_live_ids: 1000, refuse_init_producer_id: true}
  cluster_producer_ids_rate: 20000
  help_url: https://wiki.example
  default: {producer_ids_rate: 1.5, producer_byte_rate: 20MB, clients: {bulk: {producer_byte_rate: 5MB}}}
  users: {alice: {mode: observe, producer_ids_rate: 0, exempt: [bytes], owner: o}}
  clients: {kcat: {consumer_byte_rate: 1MB}, <default>: {consumer_byte_rate: 80MB}}
  fuse: 2000000
  runtime_changes: file_wins
limits: {frame: 10MiB, idle: 1m}
events: {topic: __other, retention: 1d}
state_dir: /tmp/other
admin: {bind: 127.0.0.1:9991, writable: true, token_file: /run/hunter3}
drain_timeout: 1s
log_level: debug
"""
RELOADABLE = {
    "quotas.mode",
    "quotas.producer_ids.burst",
    "quotas.producer_ids.transactional",
    "quotas.producer_ids.max_throttle",
    "quotas.producer_ids.refuse_init_producer_id",
    "quotas.cluster_producer_ids_rate",
    "quotas.help_url",
    "quotas.default.producer_byte_rate",
    "quotas.default.producer_ids_rate",
    "quotas.default.clients.bulk.producer_byte_rate",
    "quotas.users.alice.producer_ids_rate",
    "quotas.users.alice.mode",
    "quotas.users.alice.owner",
    "quotas.users.alice.exempt",
    "quotas.clients.kcat.consumer_byte_rate",
    "quotas.clients.<default>.consumer_byte_rate",
    "quotas.fuse",
    "quotas.runtime_changes",
    "log_level",
}
UNTIL_RESTART = {
    "cluster.name",
    "cluster.bootstrap_servers",
    "gateway_id",
    "own_client.mechanism",
    "own_client.username",
    "own_client.password_file",
    "listeners[0].bind",
    "listeners[1].bind",
    "listeners[1].node_ports.first",
    "listeners[1].sasl_oauthbearer_sub_claim_name",
    "quotas.producer_ids.window",
    "quotas.producer_ids.remember",
    "quotas.producer_ids.grace",
    "quotas.producer_ids.max_live_ids",
    "limits.frame",
    "limits.idle",
    "events.topic",
    "events.retention",
    "state_dir",
    "admin.bind",
    "admin.writable",
    "admin.token_file",
    "drain_timeout",
}


def test_every_key_either_holds_at_once_or_is_named() -> None:
    running, in_file = parse(CLUSTER), parse(EVERYTHING_SET)
    after = taken_over(running, in_file)

    assert {found.key for found in differences(running, after)} == RELOADABLE
    assert {found.key for found in differences(after, in_file)} - {"own_client"} == UNTIL_RESTART


def test_what_may_be_a_secret_is_not_shown() -> None:
    told = "\n".join(str(found) for found in differences(parse(CLUSTER), parse(EVERYTHING_SET)))

    assert "own_client.password_file: (not shown) -> (not shown)" in told
    assert "admin.token_file" in told
    assert "hunter" not in told


def test_what_waits_for_a_restart_keeps_the_value_that_is_running() -> None:
    running = parse(CLUSTER)
    ids = taken_over(running, parse(EVERYTHING_SET)).to_quotas().producer_ids

    assert (ids.window_ms, ids.remember_ms) == (3_600_000, 86_400_000)
    assert (ids.max_throttle_ms, ids.transactional) == (5_000, Mode.ENFORCE)
    assert taken_over(running, running) == running


# ---- who begins to be enforced -------------------------------------------------------------------------


def observed(would_refuse: int) -> tuple[Quotas, UserSnapshot]:
    """Alice, who brought so many ids beyond her quota while she was observed."""
    quotas = parse(OBSERVING).to_quotas()
    world = World(quotas)
    world.spend(11 + would_refuse)
    return quotas, next(world.admission.user_snapshots(0))


def test_promotions_are_of_those_whom_the_change_makes_refusable() -> None:
    before, alice = observed(5)
    assert alice.would_refuse == 5

    everybody = parse(ENFORCING).to_quotas()
    only_bob = parse(OBSERVING + "  #\n").quotas.model_copy(
        update={"users": parse(CLUSTER + "quotas: {users: {bob: {mode: enforce}}}").quotas.users}
    )
    exempt = parse(CLUSTER + "quotas: {mode: enforce, users: {alice: {exempt: [producer_ids]}}}").to_quotas()

    assert promotions(before, everybody, lambda: [alice]) == [Promotion("alice", 5)]
    assert promotions(everybody, everybody, lambda: [alice]) == []
    assert promotions(before, only_bob.to_quotas(), lambda: [alice]) == [Promotion("bob", 0)]
    assert promotions(before, exempt, lambda: [alice]) == []


# ---- reading it again ----------------------------------------------------------------------------------


class OneAdmission:
    """Quotas of a file that go straight to an admission."""

    def __init__(self, settings: Settings) -> None:
        self.world = World(settings.to_quotas())
        self.versions = 0

    def reloading(self, file: Path | None, settings: Settings) -> Reloading:
        return Reloading(file, settings, lambda: self.world.admission.quotas, self.file_changed, self.users)

    def file_changed(self, settings: Settings) -> None:
        self.versions += 1
        self.world.admission.set_quotas(settings.to_quotas(), self.world.now_ms)

    def users(self) -> Iterator[UserSnapshot]:
        return self.world.admission.user_snapshots(self.world.now_ms)


class Scene:
    """A file, what is read from it, and what is logged."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "pidgate.yaml"
        self.file.write_text(text)
        settings = load(self.file)
        self.quotas = OneAdmission(settings)
        self.world = self.quotas.world
        self.reloading = self.quotas.reloading(self.file, settings)
        self.lines: list[Any] = []

    def rewrite(self, text: str) -> None:
        """As editors do it."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.file)

    def logged(self, event: str) -> list[Any]:
        return [line for line in self.lines if line["event"] == event]

    def metric(self, name: str, **labels: str) -> float | None:
        registry = CollectorRegistry()
        registry.register(ReloadCollector(self.reloading))
        return registry.get_sample_value(f"pidgate_{name}", labels)


@asynccontextmanager
async def scene(folder: Path, text: str) -> Any:
    made = Scene(folder, text)
    with capture_logs() as made.lines:
        made.reloading.start()
        await until(lambda: made.reloading.is_watching)
        try:
            yield made
        finally:
            await made.reloading.stop()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(reloading, "SETTLED_S", 0.005)


async def until(is_true: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + 30  # a dear file on a busy machine
    while not is_true():
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.002)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 80))


def test_a_changed_file_holds_at_once_and_tokens_keep_their_fraction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            the.world.spend(4)
            before = next(the.world.admission.user_snapshots(0))
            the.rewrite(RAISED)
            await until(lambda: the.reloading.results["applied"])
            after = next(the.world.admission.user_snapshots(0))

            # 6 of 10 tokens before, the same six tenths of 40 after.
            assert (before.tokens, after.tokens) == (6.0, 24.0)
            assert (before.rate_milli, after.rate_milli) == (10_000, 40_000)
            [line] = the.logged("config_reloaded")
            assert line["cause"] == "file"
            assert line["changed"] == ["quotas.default.producer_ids_rate: 10 -> 40"]

    run(scenario)


def test_a_signal_reads_the_file_without_waiting_for_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "LOOK_EVERY_S", 3600.0)

    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            the.rewrite(RAISED)
            the.reloading.reload()
            await until(lambda: the.reloading.results["applied"])
            assert the.logged("config_reloaded")[0]["cause"] == "signal"
            the.reloading.reload()
            await until(lambda: the.reloading.results["unchanged"])
            assert the.quotas.versions == 1
            assert the.logged("config_reloaded")[1]["changed"] == []
            assert the.metric("config_reloads_total", result="unchanged") == 1

    run(scenario)


@rule("Quotas are replaced as a whole; a file with an error changes nothing.", "fleet")
@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (ENFORCING + "  users: {a: {", "pidgate.yaml", "is not valid YAML"),
        (CLUSTER + "quotas:\n  mod: observe\n", "pidgate.yaml:3", "did you mean mode?"),
        (RAISED + "admin: {bind: 127.0.0.1:9292}\n", "pidgate.yaml:3", "move one of them"),
        ("", "pidgate.yaml:1", "add cluster: {bootstrap_servers: [host:9092]}"),
        (RAISED.replace("40", "9" * 400), "pidgate.yaml:2", "is too high"),
        ("a: " + "[" * 5_000, "pidgate.yaml", "is nested too deeply"),
        (MANY_ALIASES, "pidgate.yaml:", "write fewer aliases"),
        (CLUSTER + "#" * 2**24, "pidgate.yaml", "is longer than"),
    ],
    ids=["no YAML", "unknown key", "a port twice", "empty", "400 digits", "deep", "aliases", "long"],
)
def test_a_bad_file_changes_nothing_and_says_so(tmp_path: Path, text: str, where: str, said: str) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            running = the.reloading.settings
            taken_s = the.metric("config_last_reload_timestamp_seconds")
            the.rewrite(text)
            await until(lambda: the.reloading.results["refused"])

            assert (the.quotas.versions, the.reloading.settings) == (0, running)
            problem = the.logged("config_problem")[0]
            assert problem["where"].endswith(where) or where in problem["where"]
            assert said in problem["text"]
            [refused] = the.logged("config_refused")
            assert (refused["problems"], refused["log_level"]) == (len(the.logged("config_problem")), "error")
            assert the.metric("config_last_reload_successful") == 0
            assert the.metric("config_reloads_total", result="refused") == 1
            assert the.metric("config_last_reload_timestamp_seconds") == taken_s

            the.rewrite(RAISED)
            await until(lambda: the.reloading.results["applied"])
            assert the.metric("config_last_reload_successful") == 1
            assert the.quotas.versions == 1

    run(scenario)


def test_a_mistake_of_ours_in_a_reload_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Settings:
        raise OverflowError("int too large")

    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            monkeypatch.setattr(reloading, "taken_over", fails)
            the.rewrite(RAISED)
            await until(lambda: the.reloading.results["refused"])
            assert the.metric("config_last_reload_successful") == 0
            assert "OverflowError: int too large" in the.logged("config_problem")[0]["text"]

    run(scenario)


@pytest.mark.parametrize(
    ("before", "after", "key", "text"),
    [
        (ENFORCING, CLUSTER, "quotas", "mode enforce, 0 users with settings -> mode observe, 0 users"),
        (ENFORCING, OBSERVING, "quotas.mode", "enforce -> observe"),
        (
            OBSERVING[:-2] + ", users: {alice: {mode: enforce}}}\n",
            OBSERVING,
            "quotas.users.alice.mode",
            "enforce -> (nothing)",
        ),
    ],
)
def test_a_file_that_loses_its_quotas_or_enforce_is_warned_of(
    tmp_path: Path, before: str, after: str, key: str, text: str
) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, before) as the:
            the.rewrite(after)
            await until(lambda: the.reloading.results["applied"])
            found = {line["key"]: line["text"] for line in the.logged("config_warning")}
            assert text in found[key]

    run(scenario)


def test_all_problems_of_a_file_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            the.rewrite(CLUSTER + "quotas:\n  mode: no\n  help: x\nstate_dir: 7\n")
            await until(lambda: the.reloading.results["refused"])
            assert [line["key"] for line in the.logged("config_problem")] == [
                "quotas.mode",
                "quotas.help",
                "state_dir",
            ]

    run(scenario)


def test_quotas_hold_while_what_needs_a_restart_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            changed = RAISED.replace("quotas: {", "quotas: {producer_ids: {window: 2h}, ")
            the.rewrite(changed + "drain_timeout: 9s\n")
            await until(lambda: the.reloading.results["applied"])

            quotas = the.world.admission.quotas
            assert quotas.default.producer_ids_rate_milli == 40_000
            assert quotas.producer_ids.window_ms == 3_600_000
            named = {(line["key"], line["running"], line["in_file"]) for line in the.logged(RESTART)}
            assert named == {("quotas.producer_ids.window", "1h", "2h"), ("drain_timeout", "25s", "9s")}
            assert the.metric("config_restart_needed") == 2
            assert the.metric("config_last_reload_successful") == 1

            the.rewrite(RAISED)
            await until(lambda: the.metric("config_restart_needed") == 0)
            assert the.quotas.versions == 1

    run(scenario)


RESTART = "config_restart_needed"


def test_what_begins_to_be_enforced_is_told_with_what_it_would_have_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, OBSERVING) as the:
            the.world.spend(11 + 7)
            the.rewrite(ENFORCING)
            await until(lambda: the.logged("enforcing_begins"))
            [line] = the.logged("enforcing_begins")
            assert (line["user"], line["would_refuse"], line["log_level"]) == ("alice", 7, "warning")

    run(scenario)


def test_a_change_between_reading_and_watching_is_not_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = Scene(tmp_path, ENFORCING)
        made.rewrite(RAISED)
        made.reloading.start()
        await until(lambda: made.reloading.results["applied"])
        await made.reloading.stop()

    run(scenario)


def test_without_a_file_a_signal_says_that_there_is_nothing_to_reload() -> None:
    async def scenario() -> None:
        settings = parse(CLUSTER)
        quotas = OneAdmission(settings)
        reloads = quotas.reloading(None, settings)
        with capture_logs() as lines:
            reloads.start()
            reloads.reload()
            await reloads.stop()
        assert [line["event"] for line in lines] == ["nothing_to_reload"]
        assert list(ReloadCollector(reloads).collect()) == []

    run(scenario)


def test_a_gateway_without_a_file_outlives_a_signal() -> None:
    port = free_block(13)
    options = {
        "--bootstrap-servers": "127.0.0.1:1",
        "--bind": f"127.0.0.1:{port}",
        "--admin": f"127.0.0.1:{port + 1}",
    }
    pidgate = Path(sys.executable).with_name("pidgate")
    typed = [part for option in options.items() for part in option]
    process = subprocess.Popen([pidgate, "run", *typed], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        log = iter(process.stderr)
        assert any("listening" in line for line in log)
        process.send_signal(signal.SIGHUP)
        [said] = [json.loads(next(line for line in log if "nothing_to_reload" in line))]
        assert "--config" in said["remedy"]
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
def test_observing_by_reload_lifts_no_refusal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            the.world.spend(11)
            client = the.world.connect()
            the.world.refusal(client, batch(1))
            the.rewrite(OBSERVING)
            await until(lambda: the.reloading.results["applied"])
            # The batch behind the refused one may not pass it, whatever the mode is by now.
            assert the.world.refusal(client, batch(1, 1)).reason == "sticky"
            admission: Admission = the.world.admission
            assert admission.quotas.mode is Mode.OBSERVE

    run(scenario)


def test_a_new_admission_begins_with_the_reloaded_quotas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, ENFORCING) as the:
            the.rewrite(RAISED)
            await until(lambda: the.reloading.results["applied"])
            started_again = Admission(the.reloading.settings.to_quotas(), seeds(), 0)
            assert started_again.quotas == the.world.admission.quotas

    run(scenario)
