"""The producers of one run: started as processes, their journals followed while they grow."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pidgate.child_python import python_module
from pidgate.load.plan import Kind
from pidgate.sandbox import guard
from pidgate.sandbox.demo.plan import (
    ALICE,
    BOB,
    CAROL,
    CLICKS,
    MALLORY,
    NIGHTLY,
    ORDERS,
    PARTITIONS,
    USERS,
    Plan,
)
from pidgate.sandbox.journal import ProducerJournal
from pidgate.sandbox.producers.batch_journal import BatchJournal

_STOP_WITHIN_S = 6.0
# Only Linux has all of 127/8 on its loopback interface.
_ROGUES_HOST = "127.0.0.66" if sys.platform == "linux" else None
_CLIENTS = {ALICE: ("confluent", "PLAIN"), BOB: ("aiokafka", "SCRAM-SHA-256")}


class Tail:
    """The JSON lines that were added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._cut_off = b""

    def new(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return
        self._at += len(text)
        *lines, self._cut_off = (self._cut_off + text).split(b"\n")
        for line in lines:
            yield json.loads(line)


class Member:
    """One producer process and its files."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.journal_path = directory / f"{name}.jsonl"
        self.notes_path = directory / f"{name}.notes.json"
        self._log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, module: str, arguments: Sequence[str]) -> None:
        with self._log_path.open("wb") as log:
            self._process = guard.spawn(
                python_module(f"pidgate.sandbox.producers.{module}", *arguments),
                stdout=log,
                stderr=log,
            )

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> None:
        """Wait for the end; killed after the time."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        guard.ended(self._process)

    def notes(self) -> dict[str, Any]:
        """What the client noticed; empty when it was killed before it could tell."""
        try:
            return dict(json.loads(self.notes_path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}


class Bystanders:
    """alice and bob, with two unlike real clients."""

    def __init__(self, plan: Plan, bootstrap_server: str, directory: Path) -> None:
        self.members = {user: Member(user, directory) for user in (ALICE, BOB)}
        self._tails = {user: Tail(member.journal_path) for user, member in self.members.items()}
        self.counts: dict[str, Counter[str]] = {user: Counter() for user in self.members}
        """user -> event -> records, as of the last `follow`."""
        for user, member in self.members.items():
            client, mechanism = _CLIENTS[user]
            member.start(
                "bystander",
                [
                    *("--client", client, "--mechanism", mechanism),
                    *_login(bootstrap_server, user),
                    *("--topic", ORDERS, "--partitions", str(PARTITIONS[ORDERS])),
                    *("--client-id", f"{user}-orders", "--per-s", str(plan.bystander_per_s)),
                    *("--journal", str(member.journal_path), "--notes", str(member.notes_path)),
                ],
            )

    def follow(self) -> None:
        for user, tail in self._tails.items():
            self.counts[user].update(event["event"] for event in tail.new())

    def wait_until_acknowledged(self, records: int, timeout_s: float) -> bool:
        """Until each has that many; False when that takes too long."""
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s:
            self.follow()
            if all(count["acknowledged"] >= records for count in self.counts.values()):
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        _stop(self.members.values())

    def journals(self) -> dict[str, ProducerJournal]:
        return {user: ProducerJournal.load(member.journal_path) for user, member in self.members.items()}

    def notes(self) -> dict[str, dict[str, Any]]:
        return {user: member.notes() for user, member in self.members.items()}


class Rogues:
    """mallory's processes, and carol's crash loop."""

    def __init__(self, plan: Plan, bootstrap_server: str, directory: Path) -> None:
        self._mallory = [Member(f"mallory-etl-{n}", directory) for n in range(1, plan.rogues + 1)]
        self._carol = Member("carol-nightly", directory)
        self._tails = [(Tail(member.journal_path), BatchJournal()) for member in self._mallory]
        self._carol_tail = Tail(self._carol.journal_path)
        self.crash_loop: Counter[str] = Counter()
        for n, member in enumerate(self._mallory):
            member.start(
                "synthetic",
                [
                    Kind.ID_PER_BATCH,
                    *_login(bootstrap_server, MALLORY),
                    *("--topic", CLICKS),
                    *("--client-id", member.name, "--threads", str(plan.threads)),
                    *("--delivery-timeout-s", str(plan.rogue_delivery_timeout_s)),
                    *("--journal", str(member.journal_path), "--seed", str(plan.seed * 1_000 + n)),
                    *(("--from-host", _ROGUES_HOST) if _ROGUES_HOST else ()),
                ],
            )
        self._carol.start(
            "synthetic",
            [
                Kind.CRASH_LOOPING,
                *_login(bootstrap_server, CAROL),
                *("--topic", NIGHTLY, "--client-id", self._carol.name),
                *("--journal", str(self._carol.journal_path)),
            ],
        )

    def follow(self) -> None:
        for tail, journal in self._tails:
            journal.replay(tail.new())
        self.crash_loop.update(event["event"] for event in self._carol_tail.new())

    @property
    def mallory(self) -> list[BatchJournal]:
        """As of the last `follow`."""
        return [journal for _, journal in self._tails]

    def stop(self) -> None:
        """carol's loop ends after the life that is under way."""
        _stop([*self._mallory, self._carol])

    def carol_journal(self) -> ProducerJournal:
        return ProducerJournal.load(self._carol.journal_path)

    @property
    def carol_client_id(self) -> str:
        return self._carol.name


def _login(bootstrap_server: str, user: str) -> list[str]:
    return ["--bootstrap-server", bootstrap_server, "--user", user, "--password", USERS[user]]


def _stop(members: Iterable[Member]) -> None:
    """All at once, then wait for each."""
    members = list(members)
    for member in members:
        member.ask_to_stop()
    give_up_s = time.monotonic() + _STOP_WITHIN_S
    for member in members:
        member.wait(max(0.1, give_up_s - time.monotonic()))
