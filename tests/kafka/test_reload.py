"""A gateway's file is changed while producers work: what holds, how soon, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tests.support.running_producers import USER, until
from tests.support.swarm import started
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

LONG_WINDOW = "365d"
"""So that tokens do not grow while a test looks at them."""
"""Two of them take long, in `make faults`."""


@contextmanager
def gateway_of(
    cluster: Cluster, rate: int, *, mode: str = "enforce", **more: Any
) -> Iterator[GatewayProcess]:
    quotas = {
        "mode": mode,
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"window": LONG_WINDOW, "max_throttle": "500ms"},
    }
    settings = {**more}
    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, settings=settings) as gateway:
        yield gateway


@pytest.fixture
def topic(cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    return create_topic(cluster.bootstrap_servers(), topic_name("reload"), 3)


def file_of(gateway: GatewayProcess) -> Path:
    assert gateway.directory is not None
    return gateway.directory / "pidgate.yaml"


def write(gateway: GatewayProcess, text: str) -> float:
    """Put a file in place of the gateway's, as editors do; returns when (wall clock)."""
    new = file_of(gateway).with_suffix(".new")
    new.write_text(text)
    os.replace(new, file_of(gateway))
    return datetime.now().timestamp()


def rewrite(gateway: GatewayProcess, **quotas: Any) -> float:
    """The same with other quotas, which come on top of those that it has."""
    config = copy.deepcopy(gateway.config)
    for key, value in quotas.items():
        section = config["quotas"].setdefault(key, {}) if isinstance(value, dict) else None
        if section is None:
            config["quotas"][key] = value
        else:
            section |= value
    gateway.config = config
    return write(gateway, yaml.safe_dump(config, sort_keys=False))


def reloads(gateway: GatewayProcess, result: str = "applied") -> float:
    return gateway.metrics().value("pidgate_config_reloads_total", result=result)


def logged_at_s(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def process_of(gateway: GatewayProcess, role: str) -> int:
    found = [event for event in gateway.log_events("process_started") if event["role"] == role]
    return int(found[-1]["pid"])


async def admitted_of(gateway: GatewayProcess, topic: str, producers: int) -> int:
    """How many of so many new producers are let in at the first try."""
    swarm = await started(gateway.bootstrap_servers, topic, producers)
    sent = await asyncio.gather(*(producer.send_once(b"x") for producer in swarm))
    for producer in swarm:
        producer.close()
    return sum(one.is_acknowledged for one in sent)


# ---- what holds, and how soon --------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["signal", "file"])
def test_a_refused_user_is_admitted_after_a_raise(
    cluster: Cluster, topic: str, cause: str, record_property: Callable[[str, object], None]
) -> None:
    async def scenario(gateway: GatewayProcess) -> None:
        assert await admitted_of(gateway, topic, 6) == 6
        late = await started(gateway.bootstrap_servers, topic, 8)
        loop = asyncio.get_running_loop()
        sending = [loop.create_task(producer.send(b"late")) for producer in late]
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in sending)

        written_s = await asyncio.to_thread(rewrite, gateway, default={"producer_ids_rate": 10**9})
        if cause == "signal":
            gateway.signal(signal.SIGHUP)
        sent = await asyncio.gather(*sending)
        acknowledged_s = datetime.now().timestamp()
        for producer in late:
            producer.close()
        assert all(19 in one.codes and one.codes[-1] == 0 for one in sent)
        [line] = gateway.log_events("config_reloaded")
        assert (line["cause"], line["restart_needed"]) == (cause, 0)
        assert line["changed"] == ["quotas.default.producer_ids_rate: 5 -> 1,000,000,000"]
        in_force_s = logged_at_s(line) - written_s
        print(
            f"{cause}: in force after {in_force_s:.3f} s, all acknowledged after "
            f"{acknowledged_s - written_s:.3f} s"
        )
        record_property("in_force_s", in_force_s)
        assert in_force_s < (1.0 if cause == "signal" else 4.0)

    with gateway_of(cluster, 5) as gateway:
        asyncio.run(scenario(gateway))
        assert gateway.metrics().value("pidgate_config_last_reload_successful") == 1


# ---- nothing is lost -----------------------------------------------------------------------------------


def test_observing_and_enforcing_by_reload_loses_nothing(cluster: Cluster, topic: str) -> None:
    """Producers with five batches in flight on each of three partitions, refused, observed, refused, raised."""
    with gateway_of(cluster, 1) as gateway, ExitStack() as running:
        clients = [
            running.enter_context(
                ClientProcess.produce(
                    "confluent-kafka",
                    Load(
                        bootstrap_servers=gateway.bootstrap_servers,
                        topic=topic,
                        records=900,
                        partitions=3,
                        number=number,
                        records_per_s=150,
                    ),
                )
            )
            for number in range(1, 6)
        ]
        until(lambda: gateway.metrics().value("pidgate_requests_refused_total") > 20)
        for number, mode in enumerate(["observe", "enforce", "observe"], start=1):
            rewrite(gateway, mode=mode)
            gateway.signal(signal.SIGHUP)
            until(lambda number=number: reloads(gateway) == number)  # type: ignore[misc]
            time.sleep(0.7)
        journals = [client.wait(60) for client in clients]
        refused = gateway.metrics().value("pidgate_requests_refused_total")

    verdict = check(journals, read_log(cluster.bootstrap_servers(), topic), only_ours=True)
    raise_if_bad(verdict)
    print(f"{refused:.0f} requests refused; {verdict.summary()}")
    assert verdict.acknowledged == 5 * 900


# ---- signals -------------------------------------------------------------------------------------------


def test_many_signals_at_any_moment_end_nobody(cluster: Cluster, topic: str) -> None:
    with gateway_of(cluster, 5) as gateway:
        for _ in range(50):
            gateway.signal(signal.SIGHUP)
            time.sleep(0.01)
        until(lambda: reloads(gateway, "unchanged") >= 1)
        assert gateway.is_alive
        assert asyncio.run(admitted_of(gateway, topic, 8)) == 6
        assert gateway.stop() == 0


# ---- pidgate promote -----------------------------------------------------------------------------------


def promote(gateway: GatewayProcess, typed: str, *options: str) -> subprocess.CompletedProcess[str]:
    pidgate = Path(sys.executable).with_name("pidgate")
    return subprocess.run(
        [pidgate, "promote", USER, "--config", file_of(gateway), *options],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_promotion_shows_what_would_have_been_refused_and_asks(
    cluster: Cluster, topic: str, topic_name: Callable[[str], str]
) -> None:
    own = {"topic": topic_name("events"), "replication_factor": 1}
    gateway = GatewayProcess(
        cluster.bootstrap_servers(),
        quotas={
            "mode": "observe",
            "default": {"producer_ids_rate": 5},
        },
        settings={"events": own, "admin": {}},
    )
    gateway.config["admin"] = {"bind": f"127.0.0.1:{gateway.admin_port}", "writable": True}
    with gateway:
        assert asyncio.run(admitted_of(gateway, topic, 12)) == 12
        told = "pidgate_events_published_total"
        until(
            lambda: (
                gateway.metrics().value(told) >= 12 and not gateway.metrics().value("pidgate_events_buffered")
            )
        )

        shown = promote(gateway, "somebody else\n")
        assert (shown.returncode, shown.stderr) == (0, "")
        lines = shown.stdout.splitlines()
        assert lines[0].startswith(f"User {USER}, quota 5 new producer ids per 1h (as ")
        assert lines[1] == (
            "In the last 24h: 12 new producer ids; this quota would have refused 6 of them at first (50 %)."
        )
        # A token comes every 12 minutes.
        assert lines[2] == "6 would have waited for 2 min or more, after which Java producers give up."
        assert any(line.split()[:2] == ["swarm,", "127.0.0.1"] for line in lines)
        assert lines[-1].endswith("Nothing was changed.")
        assert asyncio.run(admitted_of(gateway, topic, 1)) == 1

        done = promote(gateway, f"{USER}\n")
        assert (done.returncode, done.stderr) == (0, ""), done
        assert asyncio.run(admitted_of(gateway, topic, 3)) == 0
        assert f"{USER} is enforced already." in promote(gateway, "", "--since", "1h").stdout
