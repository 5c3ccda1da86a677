"""Draw a schedule from a seed: likely things often, rare ones rarely."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.simulator.fleet import gateway_names
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Shape, Step, Weather

FAMILIES: Final = ("java", "librdkafka", "kafka-python", "franz-go")
TRANSACTIONAL_FAMILIES: Final = ("java", "librdkafka", "franz-go")
"""kafka-python gives up for good where a request to its coordinator is lost with a connection, and hangs."""
USERS: Final = ("alice", "bob")

_SHAPES: Final = {Shape.ONE: 6, Shape.FLEET: 5, Shape.DIRECT: 1}
_WEATHERS: Final = {Weather.CALM: 6, Weather.SLOW: 2, Weather.CHOPPED: 2, Weather.NARROW: 1}
_STEPS: Final = {"send": 30, "transaction": 8, "rogues": 3, "crash": 1, "close": 1}
"""What applications do, by weight."""
_NETWORK: Final = {"cut": 6, "hold": 3, "part": 2, "refuse": 1, "half-close": 1, "late answers": 2}
_CLUSTER: Final = {"move": 8, "stop broker": 2}
_GATEWAY: Final = {"kill": 3, "drain": 2, "freeze": 2, "cut topic": 2, "slow topic": 1}
_QUOTAS: Final = {"rate": 3, "mode": 3, "exempt": 1}
_CLOCKS: Final = {"wall clock": 1}

_KINDS_PER_STEP: Final = {"network": 5, "cluster": 5, "gateway": 3, "quotas": 2, "clocks": 1}


def drawn(seed: int, shape: Shape | None = None) -> Schedule:
    """Return the schedule of a seed, of this shape if one is given."""
    random = Random(f"{seed}/schedule")
    setup = _setup(random, shape or _choice(random, _SHAPES))
    return Schedule(seed, setup, tuple(_steps(random, setup)))


def _choice(random: Random, weights: dict[Any, int]) -> Any:
    return random.choices(list(weights), list(weights.values()))[0]


# ---- what stands still ---------------------------------------------------------------------------------


def _setup(random: Random, shape: Shape) -> Setup:
    transactional = random.random() < 0.3
    return Setup(
        shape=shape,
        brokers=random.choice((1, 2, 2, 3)),
        partitions=random.choice((1, 2, 2, 3)),
        is_replicated_late=random.random() < 0.3,
        has_login=random.random() < 0.2,
        has_state_dir=random.random() < 0.3,
        has_events=shape.is_fleet or random.random() < 0.4,
        is_long_known=random.random() < 0.5,
        weather=_choice(random, _WEATHERS),
        quotas=_quotas(random, transactional=transactional),
        clients=tuple(_clients(random, shape, transactional=transactional)),
    )


def _quotas(random: Random, *, transactional: bool) -> QuotaSetup:
    is_slow = random.random() < 0.7
    return QuotaSetup(
        is_enforced=random.random() < 0.85,
        rate=random.choice((1, 1, 2, 3, 10)) if random.random() < 0.95 else None,
        window_ms=2_000 if is_slow else 500,
        burst=random.choice((0.01, 0.01, 0.5, 1.0)),
        max_throttle_ms=random.choice((1_000, 1_000, 3_000)),
        enforces_transactional=transactional and random.random() < 0.5,
        refuses_init=random.random() < 0.15,
        producer_byte_rate=random.choice((500, 2_000)) if random.random() < 0.1 else None,
    )


def _clients(random: Random, shape: Shape, *, transactional: bool) -> list[ClientSetup]:
    clients = []
    for number in range(random.choice((1, 2, 2, 3))):
        is_transactional = transactional and random.random() < 0.6
        family = random.choice(TRANSACTIONAL_FAMILIES if is_transactional else FAMILIES)
        clients.append(
            ClientSetup(
                name=f"{family}-{number + 1}",
                family=family,
                user=USERS[random.random() < 0.2],
                is_transactional=is_transactional,
                gateway=random.randrange(2) if shape.is_fleet else 0,
                hurry_s=random.choice((2.0, 6.0))
                if random.random() < 0.15 and not is_transactional
                else None,
            )
        )
    return clients


# ---- what happens --------------------------------------------------------------------------------------


def _steps(random: Random, setup: Setup) -> list[Step]:
    length_ms = random.choice((500, 2_000, 2_000, 6_000))
    steps = [_application_step(random, setup, length_ms) for _ in range(random.randint(4, 16))]
    for _ in range(random.choice((0, 1, 2, 3, 5))):
        steps += _faults(random, setup, random.randrange(length_ms))
    return sorted(steps, key=lambda step: step[0])


def _application_step(random: Random, setup: Setup, length_ms: int) -> Step:
    at_ms = random.randrange(length_ms)
    client = random.choice(setup.clients)
    verb = _choice(random, _STEPS)
    if verb == "rogues":
        return at_ms, verb, client.user, random.choice((1, 2, 4))
    if verb in ("crash", "close"):
        return at_ms, verb, client.name
    if client.is_transactional:
        parts = tuple(
            (random.randrange(setup.partitions), random.randint(1, 3)) for _ in range(random.randint(1, 3))
        )
        return at_ms, "transaction", client.name, parts, random.random() < 0.75
    return at_ms, "send", client.name, random.randrange(setup.partitions), random.choice((1, 1, 2, 3, 6))


def _faults(random: Random, setup: Setup, at_ms: int) -> list[Step]:
    kinds = dict(_KINDS_PER_STEP)
    if setup.shape is Shape.DIRECT:
        kinds = {"network": 1, "cluster": 1}
    kind = _choice(random, kinds)
    made: Step = getattr(_Fault(random, setup), kind)()
    steps = [(at_ms, *made)]
    if kind == "cluster" and random.random() < 0.5:
        # A leader that moves is worth most while something is on its way.
        client = random.choice(setup.clients)
        if not client.is_transactional:
            partition = made[1] if made[0] == "move" else random.randrange(setup.partitions)
            steps.append((max(0, at_ms - random.randrange(30)), "send", client.name, partition, 2))
            steps.append((at_ms + random.randrange(200), "send", client.name, partition, 2))
    return steps


class _Fault:
    """Draws the verb and the arguments of one fault. Each ends by itself, after the time that is its last argument."""

    def __init__(self, random: Random, setup: Setup) -> None:
        self._random, self._setup = random, setup

    def _duration_ms(self) -> int:
        return self._random.choice((20, 100, 400, 1_500, 6_000))

    def _end(self) -> str:
        """One side of a connection: a client, a broker, or a process of a gateway."""
        random, setup = self._random, self._setup
        ends = [client.name for client in setup.clients]
        ends += [f"broker-{node + 1}" for node in range(setup.brokers)]
        return random.choice(ends + gateway_names(setup))

    def network(self) -> Step:
        random = self._random
        verb = _choice(random, _NETWORK)
        if verb == "cut":
            return verb, self._end(), random.randrange(4)
        if verb == "hold":
            return verb, self._end(), random.randrange(4), self._duration_ms()
        if verb == "half-close":
            return verb, random.choice(self._setup.clients).name, random.randrange(4)
        if verb == "late answers":
            node = random.randrange(self._setup.brokers) + 1
            return (
                verb,
                random.choice(self._setup.clients).name,
                node,
                random.choice((0, 2)),
                self._duration_ms(),
            )
        if verb == "refuse":
            return verb, random.randrange(self._setup.brokers) + 1, self._duration_ms()
        return verb, self._end(), self._end(), self._duration_ms()

    def cluster(self) -> Step:
        random, setup = self._random, self._setup
        verb = _choice(random, _CLUSTER)
        node = random.randrange(setup.brokers) + 1
        if verb == "move":
            return verb, random.randrange(setup.partitions), node
        return verb, node, self._duration_ms()

    def gateway(self) -> Step:
        random, setup = self._random, self._setup
        verb = _choice(random, _GATEWAY)
        if verb == "cut topic":
            return verb, random.randrange(2), self._duration_ms()
        if verb == "slow topic":
            return verb, random.choice((10, 50)), self._duration_ms()
        if verb == "drain":
            return verb, random.randrange(2 if setup.shape.is_fleet else 1), self._duration_ms()
        return verb, random.choice(gateway_names(setup)), self._duration_ms()

    def quotas(self) -> Step:
        random = self._random
        verb = _choice(random, _QUOTAS)
        if verb == "rate":
            return verb, random.choice((1, 2, 5, 20))
        if verb == "exempt":
            return verb, random.choice(self._setup.clients).user, random.random() < 0.7
        return verb, random.choice((None, random.choice(self._setup.clients).user)), random.random() < 0.5

    def clocks(self) -> Step:
        random = self._random
        jump_ms = random.choice((-3_600_000, -5_000, -500, 500, 5_000, 3_600_000))
        return "wall clock", random.choice(gateway_names(self._setup)), jump_ms


def restless(seed: int, shape: Shape = Shape.ONE) -> Schedule:
    """Return a schedule of leaders that move while an id that is refused, or new to a partition, is being used.

    What the rules of refusal are for: where one of them is broken, these find it soonest.
    """
    random = Random(f"{seed}/restless")
    families = ("java", "java", "librdkafka")
    clients = tuple(
        ClientSetup(f"{family}-{number + 1}", family)
        for number, family in enumerate(random.choices(families, k=random.choice((1, 2, 2))))
    )
    setup = Setup(
        shape,
        brokers=2,
        is_long_known=random.random() < 0.3,
        has_events=shape is Shape.FLEET,
        quotas=QuotaSetup(rate=random.choice((1, 2)), max_throttle_ms=1_000),
        clients=clients,
    )
    steps: list[Step] = [(0, "rogues", "alice", random.choice((0, 1, 3)))]
    at_ms = 120
    for _ in range(random.randint(4, 12)):
        at_ms += random.choice((1, 5, 20, 100, 100, 500, 1_000))
        client, partition = random.choice(clients).name, random.randrange(2)
        steps.append((at_ms, "send", client, partition, random.choice((1, 2))))
        if random.random() < 0.6:
            steps.append((at_ms + random.choice((1, 3, 6, 50)), "move", partition, random.choice((1, 2))))
            steps.append((at_ms + random.choice((4, 10, 110)), "send", client, partition, 1))
        if random.random() < 0.15:
            steps.append((at_ms + random.randrange(20), "cut", client, random.randrange(3)))
        if random.random() < 0.1:
            steps.append((at_ms, "mode", None, random.random() < 0.5))
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))
