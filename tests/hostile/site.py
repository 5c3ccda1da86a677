"""A gateway under attack, an honest client beside the attacker, and what has to hold whatever the attacker does."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from uuid import UUID

from pidgate.protocol.produce import FIRST_TOPIC_ID
from tests.hostile.attack import HOSTILE_USER, Attack, Case, Outcome, Place, Target
from tests.hostile.attacker import ANSWER_S, Attacker
from tests.hostile.cost import Cost, Inside, MiB
from tests.support.bounds import THOROUGH
from tests.support.raw import RawClient, address_of
from tests.support.running_producers import until
from tests.support.tls_forwarder import Certificates, TlsForwarder, certificates
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

HONEST_USER: Final = "alice"
DESCRIBE_PRODUCERS: Final = 61
METADATA: Final = 3

BUSY_MS: Final = 50.0 if THOROUGH else 150.0
"""The longest that others may wait inside a process of the gateway, in CPU time of its event loop's thread.

An honest frame that is whole is forwarded in the callback that reads it (`Honest` has no producer id, so no quota
is asked about it): all it can wait for is the callback before. By the clock that would hold the time in which the
process had no core. By day much else runs on the same two cores, and even CPU time is stretched by what it
leaves in the caches: there only a loop that stands still is looked for."""
GROWN_BYTES: Final = 32 * MiB
OTHERS_WAIT_S: Final = 5.0
"""By the clock, with the broker's own time and beside much else on the machine: it finds who stands still, also in what
takes no CPU time (a loop that sleeps or waits for a disk, a request held for memory or a place). BUSY_MS is exact."""
RUNNING_SITES: Final = 2
_PAUSE_S: Final = 0.01

_NOT_OF_THE_ATTACK: Final = ("cluster_reached", "config_warning", "event_loop_stalled", "state_saved")
"""Log events that a busy machine brings, or time."""

_topic_numbers = itertools.count(1)

QUOTAS: Final = {
    "default": {"producer_ids_rate": 0},
    "users": {HONEST_USER: {"producer_ids_rate": 1_000_000}, HOSTILE_USER: {"producer_ids_rate": 0}},
    "producer_ids": {"max_throttle": "100ms"},
}


class Honest:
    """A user who sends a record at a time over three connections."""

    def __init__(self, address: str, topic: str, *, sasl: bool) -> None:
        self._address = address
        self._sasl = sasl
        # Without a producer id: where nobody logs in, the quota of ANONYMOUS is the attacker's too.
        self._frame = Target(topic, 9, Place()).produce(-1)
        self.longest_wait_s = 0.0
        self._done = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Honest:
        self._clients = [self._connected() for _ in range(3)]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(ANSWER_S * 2)
        for client in self._clients:
            client.close()

    def check(self) -> None:
        """Raises AssertionError when a request failed, or waited for long."""
        self._done.set()
        self._thread.join(ANSWER_S * 2)
        assert self._failure is None, f"the honest user beside the attacker: {self._failure!r}"
        assert self.longest_wait_s < OTHERS_WAIT_S, f"the honest user waited for {self.longest_wait_s:.1f} s"

    def _connected(self) -> Attacker:
        client = Attacker(self._address, ANSWER_S)
        if self._sasl:
            client.log_in(HONEST_USER)
        return client

    def _run(self) -> None:
        try:
            for client in itertools.cycle(self._clients):
                began_s = time.monotonic()
                client.ask(self._frame)
                self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began_s)
                if self._done.wait(_PAUSE_S):
                    return
        except (OSError, ValueError) as error:
            self._failure = error


class Site:
    """A running gateway before a cluster, with a probe inside each of its processes."""

    def __init__(
        self, cluster: Cluster, gateway: GatewayProcess, inside: Inside, place: Place, address: str
    ) -> None:
        self.cluster = cluster
        self.address = address
        """Where attackers connect: at the gateway, or at what speaks TLS to it for them."""
        self.gateway = gateway
        self.place = place
        self._inside = inside
        self._honest_topic = self.topic()

    @property
    def processes(self) -> set[int]:
        """Ids of the gateway's processes."""
        return self._inside.processes

    def topic(self) -> str:
        """Return the name of a new topic of one partition."""
        return create_topic(self.cluster.bootstrap_servers(), f"hostile-{next(_topic_numbers)}")

    def target(self, version: int = 9) -> Target:
        """Return a target of a new topic."""
        topic = self.topic()
        topic_id = self.topic_id(topic) if version >= FIRST_TOPIC_ID else None
        return Target(topic, version, self.place, topic_id)

    def topic_id(self, topic: str) -> UUID:
        """Return the id that the broker gave the topic."""
        with RawClient(self.cluster.bootstrap_servers(PLAINTEXT)) as broker:
            (found,) = broker.call(METADATA, 12, {"topics": [{"name": topic}]})["topics"]
        return UUID(found["topic_id"])

    def connect(self, user: str | None = None, *, source: str = "") -> Attacker:
        """Return a connection; `user` logs in, where there is SASL. `source`: another address of this machine."""
        client = Attacker(self.address, ANSWER_S, source)
        if user is not None and self.place.sasl:
            client.log_in(user)
        return client

    def ids_at_brokers(self, topic: str) -> set[int]:
        """Return the producer ids that the broker remembers for partition 0: those that passed the quota."""
        with RawClient(self.cluster.bootstrap_servers(PLAINTEXT)) as broker:
            asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}

            def partition() -> dict[str, Any]:
                (described,) = broker.call(DESCRIBE_PRODUCERS, 0, asked)["topics"]
                found: dict[str, Any] = described["partitions"][0]
                return found

            # A topic that was made a moment ago may not be led yet.
            until(lambda: partition()["error_code"] == 0)
            return {producer["producer_id"] for producer in partition()["active_producers"]}

    @contextmanager
    def under_attack(self, *, share_bytes: int = 0, log_lines: int = 1) -> Iterator[Cost]:
        """Hold the gateway to what it promises everybody else, over what is done in the block.

        Raises AssertionError when it is busy with it for longer than BUSY_MS at a time, grows by 32 MB beyond
        `share_bytes`, writes more than `log_lines` (a second), loses a process, or lets an honest user wait.
        """
        began_s = time.monotonic()
        log_before = len(self._log())
        with Honest(self.address, self._honest_topic, sasl=self.place.sasl) as honest:
            with self._inside.measuring() as cost:
                yield cost
            honest.check()
        written = self._log()[log_before:]
        assert cost.busy_ms < BUSY_MS, f"the event loop was busy for {cost.busy_ms:.0f} ms: {cost}"
        grown = cost.grown_bytes - share_bytes
        assert grown < GROWN_BYTES, f"{grown / MiB:.0f} MiB more than the share of the attack"
        seconds = 1 + int(time.monotonic() - began_s)
        assert len(written) <= log_lines * seconds, f"{len(written)} lines in the log: {written[:5]}"

    def _log(self) -> list[dict[str, Any]]:
        return [line for line in self.gateway.log_events() if line["event"] not in _NOT_OF_THE_ATTACK]

    def counted(self, expected: float, name: str, **labels: str) -> float:
        """Return a metric once it is what is expected, or after 5 s."""
        deadline_s = time.monotonic() + 5
        while (value := self.gateway.metrics().value(name, **labels)) != expected:
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        return value

    def would_refuse(self) -> float:
        """Return how many ids were let in that enforcing would have refused."""
        return self.gateway.metrics().value("pidgate_producer_ids_would_refuse_total")


@contextmanager
def running_site(
    cluster: Cluster,
    place: Place,
    *,
    quotas: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    listener: Mapping[str, Any] | None = None,
    admin: Mapping[str, Any] | None = None,
    shown: Certificates | None = None,
) -> Iterator[Site]:
    """Start a gateway at that place. `quotas` replace QUOTAS, key by key; `cluster` has SASL.

    `shown`: its certificates, where it has TLS, if they are not its own.
    """
    inside = Inside()
    with ExitStack() as stack:
        stack.callback(inside.close)
        tls = (shown or stack.enter_context(certificates())) if place.tls else None
        gateway = GatewayProcess(
            cluster.bootstrap_servers(SASL_PLAINTEXT if place.sasl else PLAINTEXT),
            quotas={**QUOTAS, **(quotas or {}), "mode": place.mode},
            settings={**(settings or {})},
            listener={**({"tls": tls.of_listener} if tls else {}), **(listener or {})},
            environment=inside.environment,
        )
        gateway.config["admin"].update(admin or {})
        stack.enter_context(gateway)
        address = gateway.bootstrap_servers
        if tls is not None:
            address = stack.enter_context(TlsForwarder(address_of(address), tls.of_client)).address
        yield Site(cluster, gateway, inside, place, address)


class Sites:
    """Gateways, one for each place; the two that were used last go on running. `settings`: of all of them."""

    def __init__(self, cluster: Cluster, settings: Mapping[str, Any] | None = None) -> None:
        self._cluster = cluster
        self._settings = settings
        self._running: dict[Place, tuple[Site, ExitStack]] = {}

    def __enter__(self) -> Sites:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            running[1].close()

    def at(self, place: Place) -> Site:
        """Return the running gateway; one that ended since, or was taken away for others, is started again."""
        if place in self._running and not self._running[place][0].gateway.is_alive:
            self._running.pop(place)[1].close()
        if place not in self._running:
            end = ExitStack()
            site = end.enter_context(running_site(self._cluster, place, settings=self._settings))
            self._running[place] = (site, end)
        found = self._running[place] = self._running.pop(place)  # the last one now
        if len(self._running) > RUNNING_SITES:
            self._running.pop(next(iter(self._running)))[1].close()
        return found[0]


def carry_out(site: Site, case: Case) -> None:
    """Attack, and hold the gateway to all that is promised. Raises AssertionError, TimeoutError."""
    attack = case.attack
    target = site.target(case.version)
    frames = [list(attack.frames(target)) for _ in range(attack.connections)]
    counted_before = site.would_refuse()
    attackers: list[Attacker] = []
    try:
        with site.under_attack(share_bytes=attack.share_bytes, log_lines=attack.log_lines):
            attackers += [_connected(site, attack) for _ in frames]
            outcomes = _carried_out(case, attackers, frames)
    finally:
        for attacker in attackers:
            attacker.close()
    _check_quota(site, case, target, counted_before)
    attack.check(target, outcomes)


def _connected(site: Site, attack: Attack) -> Attacker:
    if attack.log_in is None:
        return site.connect(attack.user)
    attacker = site.connect()
    attack.log_in(attacker)
    return attacker


def _carried_out(case: Case, attackers: Sequence[Attacker], frames: Sequence[list[bytes]]) -> list[Outcome]:
    """Have all connections attack at once."""
    outcomes: dict[int, Outcome] = {}

    def one(number: int) -> None:
        outcomes[number] = attackers[number].attack(frames[number], case.delivery, case.attack.answers)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(attackers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == len(attackers), "a connection of the attacker was neither answered nor closed"
    return [outcomes[number] for number in sorted(outcomes)]


def _check_quota(site: Site, case: Case, target: Target, counted_before: float) -> None:
    passed = site.ids_at_brokers(target.topic)
    if case.place.mode == "enforce":
        assert len(passed) <= case.attack.ids_allowed, f"{len(passed)} ids passed: {sorted(passed)[:5]}"
        return
    give_up_s = time.monotonic() + 10
    # One new id in a thousand may pass as a known one, which is not counted.
    known = len(passed) // 1_000
    while (counted := site.would_refuse() - counted_before) < len(passed) - known - case.attack.ids_allowed:
        assert time.monotonic() < give_up_s, f"{len(passed)} ids passed, {counted:.0f} of them counted"
        time.sleep(0.1)
