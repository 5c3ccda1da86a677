"""The first hour: the tutorial's commands word by word, up to a refusal that is seen, explained and lifted.

Only addresses, ports and paths are replaced; `--admin` names the port that is not the default one. With a login the
file gets the tutorial's `own_client`, and `load` its `--kafka-config`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_block, give_back
from tools.sandbox.spec import SASL_PLAINTEXT

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(sys.executable).parent
"""The commands of this environment."""
PORTS: Final = 12
FENCE: Final = re.compile(r"^```(sh|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return the language and the text of each block of the tutorial."""
    return FENCE.findall((ROOT / "docs" / "tutorial" / "index.md").read_text())


class FirstHour:
    """Types the tutorial's commands in a directory of its own; `said` holds what each one wrote.

    `commands`: the folder of pip and pidgate. Where there is no pidgate the tutorial's first line installs it.
    """

    def __init__(
        self, servers: str, user: str, login: dict[str, str] | None, directory: Path, commands: Path
    ) -> None:
        self.user = user
        self._commands = commands
        self.said: dict[str, str] = {}
        self._login = login
        self._directory = directory
        self.first_port = free_block(PORTS)
        self._gateway: subprocess.Popen[bytes] | None = None
        self._replaced = {
            "broker1:9092, broker2:9092": ", ".join(servers.split(",")),
            "broker1:9092,broker2:9092": servers,
            "gateway.example": "127.0.0.1",
            "0.0.0.0:9292": "127.0.0.1:9292",
            "9290": str(self.first_port),
            "9292": str(self.first_port + 1),
            "9300": str(self.first_port + 2),
            "--user ANONYMOUS": f"--user {user}",
            "username: pidgate": f"username: {login['user'] if login else ''}",
            "/etc/pidgate/password": str(directory / "password"),
        }
        if login is not None:
            (directory / "password").write_text(login["password"])
            (directory / "client.properties").write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f"sasl.username={user}\nsasl.password={user}-secret\n"
            )

    def play(self) -> None:
        for language, text in blocks():
            for word, replacement in self._replaced.items():
                text = text.replace(word, replacement)
            if language == "yaml":
                self._write(text)
            else:
                for line in text.replace("\\\n", " ").splitlines():
                    self._type(line.partition("#")[0].strip())

    def _write(self, text: str) -> None:
        if text.startswith("own_client:") and self._login is None:
            return
        with (self._directory / "pidgate.yaml").open("a") as file:
            file.write(text)

    def _type(self, line: str) -> None:
        if line.startswith("pip ") and not (self._commands / "pidgate").exists():
            # As a shell does it, for pidgate-*.whl.
            words = [str(next(self._directory.glob(word), word)) for word in shlex.split(line)]
            self.said[line] = self.done(*words, within_s=1_800)
        if not line.startswith("pidgate "):
            return
        _, command, *rest = words = shlex.split(line)
        if command == "run":
            self.run(rest)
            return
        if command == "load" and self._login is not None:
            words += ["--kafka-config", "client.properties"]
        if command in ("quotas", "explain"):
            words += ["--admin", f"127.0.0.1:{self.first_port}"]
        self.said[line] = self.done(*words)

    def load(self, topic: str) -> None:
        """Send something, so that there is something to see."""
        servers = f"127.0.0.1:{self.first_port + 1}"
        more = [] if self._login is None else ["--kafka-config", "client.properties"]
        self.done(
            "pidgate", "load", "-b", servers, "--topic", topic, "--create-topic", "1", "--clients", "crash-loop=1@5",
            "--duration", "3s", *more,
        )  # fmt: skip

    def done(self, command: str, *words: str, within_s: float = 60.0) -> str:
        done = subprocess.run(
            [self._commands / command, *words],
            cwd=self._directory,
            env=alone(),
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, (command, words, done.stdout[-3_000:], done.stderr[-3_000:])
        return " ".join(done.stdout.split())

    def run(self, options: list[str]) -> None:
        self.stop()
        if "--config" not in options:
            options += [
                "--bind",
                f"127.0.0.1:{self.first_port + 1}",
                "--admin",
                f"127.0.0.1:{self.first_port}",
            ]
        with (self._directory / "log").open("ab") as log:
            self._gateway = subprocess.Popen(
                [self._commands / "pidgate", "run", *options],
                cwd=self._directory,
                env=alone(),
                stdout=log,
                stderr=log,
            )
        give_up_s = time.monotonic() + 30
        while not self._is_ready():
            assert time.monotonic() < give_up_s, self.log
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        ready = f"http://127.0.0.1:{self.first_port}/readyz"
        with suppress(OSError), urllib.request.urlopen(ready, timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text()

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.terminate()
            self._gateway.wait(30)
            self._gateway = None

    def told(self, start: str) -> str:
        return next(text for line, text in self.said.items() if line.startswith(f"pidgate {start}"))

    def end(self) -> None:
        self.stop()
        give_back(self.first_port, PORTS)


def alone() -> dict[str, str]:
    """Return the environment without what names another Python or pidgate."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PIDGATE", "VIRTUAL"))
    }


@contextmanager
def first_hour(
    servers: str, user: str, login: dict[str, str] | None, directory: Path, commands: Path = HERE
) -> Iterator[FirstHour]:
    hour = FirstHour(servers, user, login, directory, commands)
    try:
        yield hour
    finally:
        hour.end()


def play_tutorial(cluster: Cluster, directory: Path, *, has_login: bool, commands: Path = HERE) -> None:
    """Type all of it against a cluster with logins; assert what each command says."""
    servers = cluster.bootstrap_servers(*([SASL_PLAINTEXT] if has_login else []))
    login = {"user": "admin", "password": "admin-secret"} if has_login else None
    with first_hour(servers, "bob" if has_login else "ANONYMOUS", login, directory, commands) as hour:
        hour.play()
        assert hour.user in hour.told("who")
        check = hour.told("check")
        assert "at most 2,001 in any hour" in check
        assert "quotas are in force from 1h on" in check
        assert ("every client is the user ANONYMOUS" in check) is not has_login
        assert "In force now: each new producer id of any other user" in hour.told("quotas grace")
        assert "In force now" in hour.told("quotas alter")
        explained = hour.told("explain --user")
        assert "Last refused: " in explained
        assert f"More for a while: pidgate quotas raise {hour.user} N --for 2h" in explained
        assert "In force now" in hour.told("quotas reset")
        load = next(text for line, text in hour.said.items() if "crash-loop=2@20" in line)
        assert re.search(r"\b21\b", load), load
        hour.load("after")  # lifted
