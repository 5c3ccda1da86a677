"""The clients of a soak: a crew of all sorts, each of which is stopped and started anew after its time.

Real clients keep journals, which are compared with the log at the end; synthetic producers bring what no library does:
new ids all the time, logins without end, refusals that nobody waits for.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pidgate.child_python import python_module
from pidgate.load.journal import ProducerJournal
from tests.soak.stage import CHECKED, GOOD, LOADED, PARTITIONS, ROGUE, Stage
from tests.support.clients.load import Load, Login, Wish
from tests.support.clients.process import ClientProcess
from tools.sandbox import guard

WARM_UP_PER_S: Final = 100
"""New ids of the rogue a second at first. They fill what is bounded, which is no leak, and would take hours at the one
a second of later: the owners of 40,000 ids, the attempts of 20,000 refused ones and the explanations
of 10,000.
"""
END_S: Final = 90.0
"""Time for a client to get its last records through."""
MANY: Final = 10**7


class Member(Protocol):
    """A running client: `enough` asks it to end, `finish` waits for it and takes what it found."""

    @property
    def is_alive(self) -> bool: ...
    def enough(self) -> None: ...
    def finish(self, found: Found) -> None: ...


@dataclass(slots=True)
class Found:
    """What all clients have found."""

    journals: list[ProducerJournal] = field(default_factory=list)
    read: int = 0
    """Records that consumers have read."""
    synthetic: Counter[str] = field(default_factory=Counter)
    """Sums of the synthetic producers' reports, by `kind.field`."""
    restarts: int = 0


class Producing:
    """A client library that produces."""

    def __init__(self, process: ClientProcess) -> None:
        self._process = process

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def enough(self) -> None:
        self._process.enough()

    def finish(self, found: Found) -> None:
        found.journals.append(self._process.wait(END_S))


class Consuming:
    """A client library that consumes in a group; it ends by itself."""

    def __init__(self, process: ClientProcess) -> None:
        self._process = process

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def enough(self) -> None:
        """Its own time is over at about the same moment."""

    def finish(self, found: Found) -> None:
        found.read += len(self._process.records(END_S))


class Synthetic(guard.GuardedProcess):
    """`pidgate load`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._folder = guard.temporary_directory("soak-load-")
        with (self._folder / "report").open("wb") as report, (self._folder / "errors").open("wb") as errors:
            command = python_module("pidgate", "load", *arguments, "--json")
            self._process = guard.spawn(command, stdout=report, stderr=errors)

    def enough(self) -> None:
        self.signal(signal.SIGTERM)

    def finish(self, found: Found) -> None:
        code = self.wait(END_S)
        if code != 0:
            self.kill()
            errors = (self._folder / "errors").read_text(errors="replace")
            raise AssertionError(f"pidgate load ended with {code}: {errors[-2000:]}")
        report: dict[str, Any] = json.loads((self._folder / "report").read_text())
        for kind, tally in report["kinds"].items():
            for name in ("acknowledged", "lost", "unfinished", "possibly_doubled", "ids", "connections"):
                found.synthetic[f"{kind}.{name}"] += tally[name]
            for code_of_answer, times in tally["refused"].items():
                found.synthetic[f"{kind}.refused.{code_of_answer}"] += times
        guard.remove_directory(self._folder)


@dataclass(slots=True)
class Post:
    """A place in the crew, with whoever has it now."""

    start: Callable[[int], Member]
    life_s: float
    member: Member | None = None
    until_s: float = 0.0


class Crew:
    """All clients; `fill_posts`, called every few seconds, starts missing clients."""

    def __init__(self, stage: Stage, life_s: float, warm_up_s: float) -> None:
        self.found = Found()
        self._started = 0
        starts = posts_of(stage, life_s, time.monotonic() + warm_up_s)
        # Not all at the same moment: somebody always comes or goes.
        self._posts = [
            Post(start, life_s * (1 + number / len(starts))) for number, start in enumerate(starts)
        ]

    def fill_posts(self) -> None:
        """Start who is missing, stop whose time is over. Raises AssertionError when a client failed."""
        now_s = time.monotonic()
        for post in self._posts:
            if post.member is not None and now_s >= post.until_s:
                post.member.enough()
                post.until_s = now_s + END_S
            if post.member is not None and not post.member.is_alive:
                post.member.finish(self.found)
                post.member = None
                self.found.restarts += 1
            if post.member is None:
                self._started += 1
                post.member = post.start(self._started)
                post.until_s = now_s + post.life_s

    def end(self) -> Found:
        """Stop all, and wait for what they found. Raises AssertionError when a client failed."""
        members = [post.member for post in self._posts if post.member is not None]
        for member in members:
            member.enough()
        for member in members:
            member.finish(self.found)
        return self.found


def posts_of(stage: Stage, life_s: float, warm_s: float) -> list[Callable[[int], Member]]:
    """How each post is filled: a call with a number that no other client has. `warm_s`: the end of the warm-up."""
    servers = stage.gateway.bootstrap_servers
    password = stage.cluster.spec.users[GOOD]
    login = Login(username=GOOD, password=password, mechanism="PLAIN")

    def producing(client: str, **more: Any) -> Callable[[int], Member]:
        def start(number: int) -> Member:
            load = Load(
                bootstrap_servers=servers,
                topic=CHECKED,
                login=login,
                records=MANY,
                partitions=PARTITIONS,
                number=number,
                records_per_s=1.0,
                **more,
            )
            return Producing(ClientProcess.produce(client, load))

        return start

    def consuming(client: str) -> Callable[[int], Member]:
        def start(number: int) -> Member:
            wish = Wish(
                bootstrap_servers=servers,
                topic=CHECKED,
                login=login,
                group=f"soak-{client}",
                records=MANY,
                timeout_s=life_s,
            )
            return Consuming(ClientProcess.consume(client, wish))

        return start

    def synthetic(user: str, *options: str, tls: bool = False) -> Callable[[int], Member]:
        where = ("--bootstrap-servers", stage.tls_servers) if tls else ("--bootstrap-servers", servers)
        own = stage.folder / f"client-{user}-{tls}.properties"
        own.write_text(
            f"security.protocol=SASL_{'SSL' if tls else 'PLAINTEXT'}\nssl.ca.location={stage.ca_file}\n"
            f"sasl.username={user}\nsasl.password={stage.cluster.spec.users[user]}\n"
        )

        def start(number: int) -> Member:
            # It ends at SIGTERM. The number distinguishes transactional ids.
            named = ("--client-id", f"soak-{number}", "--duration", "24h")
            kinds = (word for option in options for word in ("--clients", option))
            return Synthetic(("--topic", LOADED, *where, "--kafka-config", str(own), *named, *kinds))

        return start

    def rogue(number: int) -> Member:
        per_s = WARM_UP_PER_S if time.monotonic() < warm_s else 1
        return synthetic(ROGUE, f"crash-loop=4@{per_s}", "new-on-error=1@1")(number)

    return [
        producing("confluent-kafka"),
        producing("aiokafka"),
        producing("kafka-python", transaction_size=5, abort_every=4),
        producing("java"),
        consuming("confluent-kafka"),
        consuming("aiokafka"),
        synthetic(GOOD, "steady=3@3", "transactional=1@1", tls=True),
        synthetic(GOOD, "id-per-batch=1@1", tls=True),
        rogue,
    ]


def refusals(found: Found) -> int:
    """Answers with NOT_ENOUGH_REPLICAS that synthetic producers got."""
    return sum(times for name, times in found.synthetic.items() if name.endswith(".refused.19"))
