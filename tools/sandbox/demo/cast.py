"""The producers of one run: started as processes, their journals followed while they grow."""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.load.journal import ProducerJournal
from pidgate.load.plan import Kind
from tools.sandbox import guard
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, MALLORY, ROGUES_HOST, password_of
from tools.sandbox.demo.watch import Progress
from tools.sandbox.producers.bystander import LAST_ANSWERS_S

_STOP_WITHIN_S = LAST_ANSWERS_S + 10.0
_STOP_UNSERVED_WITHIN_S = 3.0
_CLIENTS = {ALICE: ("confluent", "PLAIN"), BOB: ("aiokafka", "SCRAM-SHA-256")}


@dataclass(frozen=True, slots=True)
class Place:
    """The server that producers send to, and the directory of their files."""

    bootstrap_server: str
    directory: Path


class Tail:
    """Reader of the JSON lines that were added to a file since the last look."""

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


class Member(guard.GuardedProcess):
    """One producer process and its files."""

    def __init__(self, place: Place, name: str, user: str, topic: str) -> None:
        self.name = name
        self._place = place
        self._user = user
        self._topic = topic
        self.journal_path = place.directory / f"{name}.jsonl"
        self.notes_path = place.directory / f"{name}.notes.json"

    def start(self, module: str, *arguments: object) -> None:
        login = {"bootstrap-server": self._place.bootstrap_server, "user": self._user}
        options = {**login, "password": password_of(self._user), "topic": self._topic}
        words = [f"--{name}={value}" for name, value in options.items()]
        with (self._place.directory / f"{self.name}.log").open("wb") as log:
            self._process = guard.spawn(
                # Without -P: tools/ is found in the working directory, since it is not installed.
                [
                    *(sys.executable, "-m", f"tools.sandbox.producers.{module}"),
                    *(str(argument) for argument in arguments),
                    *words,
                    f"--journal={self.journal_path}",
                ],
                stdout=log,
                stderr=log,
            )

    def notes(self) -> dict[str, Any]:
        """Return the client's notes; empty when it was killed before it could write them."""
        try:
            return dict(json.loads(self.notes_path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}


class Bystanders:
    """alice and bob, with two unlike real clients, each `per_s` records a second."""

    def __init__(self, place: Place, topic: str, partitions: int, per_s: float) -> None:
        self.members = {user: Member(place, user, user, topic) for user in _CLIENTS}
        self._tails = {user: Tail(member.journal_path) for user, member in self.members.items()}
        self.counts: dict[str, Counter[str]] = {user: Counter() for user in self.members}
        """user -> event -> records, as of the last `follow`."""
        for user, member in self.members.items():
            client, mechanism = _CLIENTS[user]
            member.start(
                "bystander",
                *("--client", client, "--mechanism", mechanism, "--client-id", f"{user}-orders"),
                *("--partitions", partitions, "--per-s", per_s, "--notes", member.notes_path),
            )

    def follow(self) -> None:
        for user, tail in self._tails.items():
            self.counts[user].update(event["event"] for event in tail.new())

    def wait_until_acknowledged(self, records: int, patience_s: float) -> None:
        """Wait until each has that many records acknowledged. Raises NotInTime after so long without another one."""
        progress = Progress(patience_s)
        while not all(count["acknowledged"] >= records for count in self.counts.values()):
            counts = [count["acknowledged"] for count in self.counts.values()]
            progress.check(
                counts, f"alice and bob had {counts} of {records} records acknowledged; their logs say why"
            )
            time.sleep(0.05)
            self.follow()

    def stop(self, *, is_served: bool = True) -> None:
        stop_all(self.members.values(), is_served=is_served)

    def journals(self) -> dict[str, ProducerJournal]:
        return {user: ProducerJournal.load(member.journal_path) for user, member in self.members.items()}

    def notes(self) -> dict[str, dict[str, Any]]:
        return {user: member.notes() for user, member in self.members.items()}


class Mallory:
    """mallory's processes, each of which has `threads` producers at a time."""

    def __init__(self, place: Place, topic: str, names: Sequence[str]) -> None:
        self.members = [Member(place, name, MALLORY, topic) for name in names]
        self._tails = [Tail(member.journal_path) for member in self.members]
        self.journals = {name: ProducerJournal(MALLORY) for name in names}
        """By client id, as of the last `follow`."""

    def start(self, *, threads: int, patience_s: float, seed: int) -> None:
        for n, member in enumerate(self.members):
            member.start(
                "synthetic",
                *(Kind.ID_PER_BATCH, "--client-id", member.name, "--threads", threads),
                *("--delivery-timeout-s", patience_s, "--seed", seed * 1_000 + n, "--from-host", ROGUES_HOST),
            )

    def follow(self) -> None:
        for tail, journal in zip(self._tails, self.journals.values(), strict=True):
            for event in tail.new():
                journal.replay(event)


class Carol:
    """carol's crash loop."""

    def __init__(self, place: Place, topic: str) -> None:
        self.member = Member(place, "carol-nightly", CAROL, topic)
        self._tail = Tail(self.member.journal_path)
        self.counts: Counter[str] = Counter()
        """event -> lives, as of the last `follow`."""
        self.member.start("synthetic", Kind.CRASH_LOOP, "--client-id", self.member.name)

    def follow(self) -> None:
        self.counts.update(event["event"] for event in self._tail.new())

    def journal(self) -> ProducerJournal:
        return ProducerJournal.load(self.member.journal_path)


def stop_all(members: Iterable[Member], *, is_served: bool = True) -> None:
    """End all at once, and wait for each to get its last answers. carol's loop ends after its current life.

    `is_served` False: the broker is dead, and nothing is to be waited for.
    """
    members = list(members)
    for member in members:
        member.signal(signal.SIGTERM)
    give_up_s = time.monotonic() + (_STOP_WITHIN_S if is_served else _STOP_UNSERVED_WITHIN_S)
    for member in members:
        if member.wait(max(0.1, give_up_s - time.monotonic())) is None:
            member.kill()
