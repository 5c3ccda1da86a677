"""Run a client in a process of its own and get its journal, or what it read.

run = ClientProcess.produce("kafka-python", Load(bootstrap_servers=..., topic="t", records=400))
journal = run.wait()
raise_if_bad(check([journal], read_log(direct, "t")))
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pidgate.load.journal import ProducerJournal
from tests.support.clients import old_clients
from tests.support.clients.java_client import VERSION_VARIABLE
from tests.support.clients.load import Load, Wish
from tests.support.clients.other_client import RELEASE_VARIABLE
from tools.sandbox import guard
from tools.sandbox.jars import NEWEST
from tools.sandbox.log_checker import LogRecord


class ClientFailed(AssertionError):
    """The client's process ended with an error or not in time. Carries the end of what it printed."""


class ClientProcess:
    """A running client. `java_version` is that of the jars for the client "java"; `release`: of another client, got by
    old_clients.py. Empty: the installed one.
    """

    def __init__(
        self,
        client: str,
        arguments: list[str],
        directory: Path,
        java_version: str,
        release: str = "",
        run_by: Sequence[str] = (),
    ) -> None:
        self.client = client
        packages = old_clients.packages(client, release) if release else None
        self.directory = directory
        self._read_bytes = self._acknowledged_count = 0
        with (directory / "stdout").open("wb") as stdout, (directory / "stderr").open("wb") as stderr:
            self._process = guard.spawn(
                [*run_by, sys.executable, "-m", "tests.support.clients.run", *arguments],
                stdout=stdout,
                stderr=stderr,
                env={
                    **os.environ,
                    VERSION_VARIABLE: java_version,
                    RELEASE_VARIABLE: release,
                    **_before(packages),
                },
            )

    @classmethod
    def produce(
        cls,
        client: str,
        load: Load,
        *,
        java_version: str = NEWEST,
        release: str = "",
        run_by: Sequence[str] = (),
    ) -> Self:
        """Start producing. `run_by` prefixes the command line."""
        directory = guard.temporary_directory(f"{client}-")
        journal = str(directory / "journal.jsonl")
        arguments = ["produce", client, load.to_json(), journal]
        return cls(client, arguments, directory, java_version, release, run_by)

    @classmethod
    def consume(cls, client: str, wish: Wish, *, java_version: str = NEWEST) -> Self:
        """Start consuming."""
        directory = guard.temporary_directory(f"{client}-")
        return cls(client, ["consume", client, wish.to_json()], directory, java_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        guard.remove_directory(self.directory)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr(self) -> str:
        return (self.directory / "stderr").read_text(errors="replace")

    def enough(self) -> None:
        """Tell a producer to send no more, and to end when everything sent has its outcome."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9 for it and its children; the journal holds what it was told until then."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        guard.ended(self._process)

    def journal(self) -> ProducerJournal:
        """What the producer was told so far."""
        return ProducerJournal.load(self.directory / "journal.jsonl")

    def wait_for_acknowledged(self, records: int, timeout_s: float = 60.0) -> None:
        """Wait until the producer has been told of so many. Raises ClientFailed, also when it ends before."""
        give_up_s = time.monotonic() + timeout_s
        while self._acknowledged() < records:
            if not self.is_alive or time.monotonic() > give_up_s:
                raise ClientFailed(f"{self.client}: {self._acknowledged()} acknowledged:\n{self._tail()}")
            time.sleep(0.05)

    def _acknowledged(self) -> int:
        """Read on in the journal, of which a fast producer may write more than could be read as a whole each time."""
        with contextlib.suppress(FileNotFoundError), (self.directory / "journal.jsonl").open("rb") as journal:
            journal.seek(self._read_bytes)
            lines, _, _ = journal.read().rpartition(b"\n")
            self._read_bytes += len(lines)
            self._acknowledged_count += lines.count(b'{"event": "acknowledged"')
        return self._acknowledged_count

    def wait(self, timeout_s: float = 120.0) -> ProducerJournal:
        """A producer's journal, complete. Raises ClientFailed."""
        with self:
            self._wait(timeout_s)
            return self.journal()

    def records(self, timeout_s: float = 120.0) -> list[LogRecord]:
        """What a consumer read, in its order. Raises ClientFailed."""
        with self:
            self._wait(timeout_s)
            lines = (self.directory / "stdout").read_text().splitlines()
        return [
            LogRecord(partition, offset, value.encode())
            for partition, offset, value in map(json.loads, lines)
        ]

    def _wait(self, timeout_s: float) -> None:
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ClientFailed(f"{self.client} took more than {timeout_s:g} s:\n{self._tail()}") from None
        guard.ended(self._process)
        if code != 0:
            raise ClientFailed(f"{self.client} ended with {code}:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self.stderr.splitlines()[-40:])


def _before(packages: Path | None) -> dict[str, str]:
    """The environment in which a folder comes before what is installed."""
    if packages is None:
        return {}
    return {
        "PYTHONPATH": os.pathsep.join((str(packages), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    }
