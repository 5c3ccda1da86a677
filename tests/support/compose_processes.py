"""The processes of deploy/compose without containers: `python -m tests.support.compose_processes` on this machine.

Kafka, the gateway with its file, both clients by their commands, and Prometheus where there is one. Only addresses,
ports and folders differ from the files. It needs no more than requirements/demo.lock installs. At the end it prints
after how many seconds the page has shown the first refusal.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import yaml

from tools.sandbox import guard
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_block, free_port, give_back

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
PORTS = 6
READY_WITHIN_S = 180.0
REFUSED_WITHIN_S = 240.0


class ComposeProcesses:
    """Use it in a `with` block; `services` has the processes by the names of compose.yaml."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._described = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
        self._folder = guard.temporary_directory("compose-")
        self._first = free_block(PORTS)
        self.prometheus_port = free_port()
        self.services: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.callback(guard.remove_directory, self._folder)
            started.callback(give_back, self._first, PORTS)
            self._start(started)
            self._stack = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, started: ExitStack) -> None:
        kafka = started.enter_context(Cluster())
        # Ports of the file, each with one of this machine.
        ports = dict(
            zip(("9290", "9292", "9301", "9392", "9401"), range(self._first, self._first + 5), strict=True)
        )
        self._replaced = {
            "kafka:9092": kafka.bootstrap_servers(),
            "0.0.0.0": "127.0.0.1",
            "advertise: pidgate": "advertise: 127.0.0.1",
            "pidgate:9": "127.0.0.1:9",
            "/etc/pidgate/": f"{self._folder}/",
            "/var/lib/pidgate": f"{self._folder}/state",
            "/etc/prometheus/alerts.yaml": str(COMPOSE.parent / "prometheus" / "alerts.yaml"),
            "/etc/prometheus/": f"{self._folder}/",
            **{name: str(port) for name, port in ports.items()},
        }
        self.admin = f"127.0.0.1:{ports['9290']}"
        for name in ("pidgate.yaml", "prometheus.yml"):
            (self._folder / name).write_text(self._here((COMPOSE / name).read_text()))
        for source, target in (("", "token"), (".scrape", "token.scrape"), (".scrape", "pidgate.scrape")):
            (self._folder / target).touch(mode=0o600)
            (self._folder / target).write_text((COMPOSE / f"demo-token{source}").read_text())
        config = self._folder / "pidgate.yaml"
        self._spawn(started, "pidgate", *self._pidgate("run", "--config", str(config)))
        self._wait_until_ready()
        for client in ("steady", "offender"):
            words = [self._here(word) for word in self._described[client]["command"]]
            self._spawn(started, client, *self._pidgate(*words))
        if (prometheus := shutil.which("prometheus")) is not None:
            options = [f"--storage.tsdb.path={self._folder / 'data'}"]
            options += [f"--web.listen-address=127.0.0.1:{self.prometheus_port}"]
            file = f"--config.file={self._folder / 'prometheus.yml'}"
            self._spawn(started, "prometheus", prometheus, file, *options)

    def _here(self, text: str) -> str:
        for word, here in self._replaced.items():
            text = text.replace(word, here)
        return text

    @staticmethod
    def _pidgate(*words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "pidgate", *words]

    def _spawn(self, started: ExitStack, service: str, *command: str) -> None:
        with (self._folder / f"{service}.log").open("wb") as log:
            process = guard.spawn(command, cwd=self._folder, stdout=log, stderr=log)
        self.services[service] = process
        started.callback(guard.ended, process)
        started.callback(process.wait)
        started.callback(process.kill)

    def log(self, service: str) -> str:
        return (self._folder / f"{service}.log").read_text(errors="replace")

    def _wait_until_ready(self) -> None:
        give_up_s = time.monotonic() + READY_WITHIN_S
        while self._status("/readyz") != 200:
            if self.services["pidgate"].poll() is not None or time.monotonic() > give_up_s:
                raise AssertionError(f"the gateway is not ready:\n{self.log('pidgate')}")
            time.sleep(0.1)

    def _status(self, path: str) -> int:
        with suppress(OSError), urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as answer:
            return int(answer.status)
        return 0

    def page(self) -> dict[str, Any]:
        """Return what the first view of the page shows."""
        token = (COMPOSE / "demo-token").read_text().strip()
        request = urllib.request.Request(
            f"http://{self.admin}/v1/present?view=first", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            shown: dict[str, Any] = json.load(answer)
        return shown

    def wait_for_a_refusal(self) -> None:
        """Wait until the page says that a user was refused. Raises AssertionError."""
        give_up_s = time.monotonic() + REFUSED_WITHIN_S
        while not self.page()["head"]["refused_1h"]:
            if time.monotonic() > give_up_s:
                raise AssertionError(f"nothing was refused:\n{self.log('offender')}")
            time.sleep(0.2)


def main() -> None:
    began_s = time.monotonic()
    with ComposeProcesses() as processes:
        processes.wait_for_a_refusal()
        print(f"the page shows a refusal after {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
