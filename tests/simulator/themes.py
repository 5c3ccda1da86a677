"""Themes: schedules that aim. Each makes frequent what one kind of rule guards against; `aimed` draws one of a seed.

`drawn` (drawing.py) is the theme that aims at nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Final

from tests.simulator import accounts, scenes
from tests.simulator.clients.traits import FAMILIES, READINGS, UNUSUAL
from tests.simulator.drawing import drawn, restless
from tests.simulator.fleet import gateway_names
from tests.simulator.rarities import Chances, with_lanes, with_rarities
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Shape, Step, Weather


class Theme(StrEnum):
    """What a schedule aims at."""

    ANYTHING = "anything"
    RESTLESS = "restless"
    """Leaders that move while an id that is refused, or new, is being used."""
    REFUSALS = "refusals"
    """A refusal that its client has not read, what could lift it meanwhile, and a later batch."""
    HELD = "held beginnings"
    """A beginning, mostly of an id known for long, that a mute holds while its leader moves."""
    ONE_PORT = "held beginnings on one port"
    """The same, and the two brokers are reached through one or two gateways of a fleet on one port."""
    OUTAGES = "outages"
    """Gateways and topics that are gone for a while, and many new ids."""
    SNAPSHOTS = "snapshots"
    """A gateway that is killed a few seconds after new ids, of which only its state directory knows."""
    FLEET = "a fleet"
    """Two gateways in good health, and new ids through both."""
    HOSTILE = "hostile"
    """Clients that break the protocol, beside good ones."""
    PASSING = "passing on"
    """Large requests that a gateway passes on as they come, and what may happen in their middle."""
    ACCOUNTS = "accounts"
    """Byte rates, and clients of every kind that wait for them: sessions, groups, deep pipelines, new connections."""
    LANES = "lanes"
    """Much that lanes may carry, and what may happen to a connection while it is lent."""


AIMED: Final = {
    Theme.ANYTHING: 12,
    Theme.RESTLESS: 4,
    Theme.REFUSALS: 14,
    Theme.HELD: 7,
    Theme.ONE_PORT: 2,
    Theme.OUTAGES: 1,
    Theme.SNAPSHOTS: 1,
    Theme.FLEET: 1,
    Theme.HOSTILE: 1,
    Theme.PASSING: 6,
    Theme.ACCOUNTS: 2,
    Theme.LANES: 8,
}
"""How often each is drawn, by weight."""


RARITIES: Final = {
    Theme.ANYTHING: Chances(little_memory=0.1, more_quotas=0.4, slow_disk=0.1, states=0.1),
    Theme.HOSTILE: Chances(little_memory=0.6, more_quotas=0.4, states=0.1),
    Theme.PASSING: Chances(little_memory=0.3),
}
"""What is rare in a theme's schedules; in the other ones none of it is."""


def aimed(seed: int, theme: Theme | None = None) -> Schedule:
    """Return the schedule of a seed: of this theme, or of one that the seed draws."""
    if theme is None:
        theme = Random(f"{seed}/theme").choices(list(AIMED), list(AIMED.values()))[0]
    schedule = with_lanes(_DRAWN[theme](seed))
    return with_rarities(schedule, RARITIES[theme]) if theme in RARITIES else schedule


# ---- refusals ------------------------------------------------------------------------------------------


def _refusals(seed: int) -> Schedule:
    random = Random(f"{seed}/refusals")
    scene = random.choices(list(SCENES), list(SCENES.values()))[0]
    is_hurried = scene is scenes.given_up
    windows_ms = {scenes.given_up: (10_000,), scenes.read_in_part: (500,)}.get(scene, (500, 2_000))
    family = random.choice(("java", "java", "java", "librdkafka"))
    setup = Setup(
        Shape.ONE,
        quotas=QuotaSetup(rate=1, window_ms=random.choice(windows_ms), max_throttle_ms=1_000),
        clients=(
            ClientSetup(f"{family}-1", family, hurry_s=scenes.HURRY_S if is_hurried else None),
            *_bystanders(random),
        ),
    )
    return Schedule(seed, setup, scenes.steps(scene, random, setup))


SCENES: Final = {
    scenes.admitted_meanwhile: 3,
    scenes.lifted: 4,
    scenes.behind_a_mute: 4,
    scenes.read_in_part: 3,
    scenes.early_return: 1,
    scenes.given_up: 2,
    scenes.anything_between: 2,
}
"""What happens between two batches, by weight."""


def _held(seed: int) -> Schedule:
    random = Random(f"{seed}/held")
    is_long_known = random.random() < 0.7
    setup = Setup(
        Shape.ONE,
        partitions=3 if is_long_known else 2,
        is_long_known=is_long_known,
        fresh_partitions=1,
        quotas=QuotaSetup(
            rate=1,
            window_ms=random.choice((500, 2_000)),
            max_throttle_ms=1_000,
            producer_byte_rate=scenes.BYTE_RATE if is_long_known else None,
        ),
        clients=(ClientSetup("java-1", "java"), *_bystanders(random)),
    )
    # A known id is muted for its bytes only.
    scene = (
        scenes.behind_a_byte_wait if is_long_known else random.choice((scenes.behind_a_mute, scenes.lifted))
    )
    return Schedule(seed, setup, scenes.steps(scene, random, setup))


def _one_port(seed: int) -> Schedule:
    schedule = _held(seed)
    return replace(schedule, setup=replace(schedule.setup, shape=Shape.ONE_PORT, has_events=True))


def _bystanders(random: Random) -> tuple[ClientSetup, ...]:
    return (ClientSetup("librdkafka-2", "librdkafka"),) if random.random() < 0.2 else ()


def _clients(random: Random) -> tuple[ClientSetup, ...]:
    families = random.choices(("java", "librdkafka", "kafka-python", "franz-go"), k=random.choice((1, 2)))
    return tuple(ClientSetup(f"{family}-{number + 1}", family) for number, family in enumerate(families))


# ---- outages -------------------------------------------------------------------------------------------


def _outages(seed: int) -> Schedule:
    random = Random(f"{seed}/outages")
    shape = random.choice((Shape.ONE, Shape.ONE, Shape.FLEET))
    setup = Setup(
        shape,
        has_events=shape is Shape.FLEET or random.random() < 0.5,
        has_state_dir=random.random() < 0.5,
        is_long_known=random.random() < 0.3,
        quotas=QuotaSetup(rate=1, window_ms=random.choice((2_000, 10_000)), max_throttle_ms=1_000),
        clients=_clients(random),
    )
    steps: list[Step] = []
    at_ms = 100
    for _ in range(random.randint(1, 2)):
        steps.append((at_ms, "rogues", "alice", random.choice((1, 2))))
        at_ms += random.choice((400, 1_000, 2_000))
        for_ms = random.choice((20, 400, 1_500, 4_000))
        steps.append((at_ms, *_outage(random, shape, for_ms)))
        soon_ms = random.choice((50, for_ms, for_ms + 300))
        count = random.choice((1, 2, 4))
        steps.append((at_ms + soon_ms, "rogues", "alice", count))
        client = random.choice(setup.clients).name
        steps.append((at_ms + random.randrange(300), "send", client, random.randrange(2), 2))
        at_ms += for_ms + random.choice((200, 1_000, 2_000))
        steps.append((at_ms, "rogues", "alice", random.choice((1, 2))))
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


def _outage(random: Random, shape: Shape, for_ms: int) -> Step:
    whom = random.choice(("gateway-1", "gateway-2")) if shape is Shape.FLEET else "gateway-1"
    number = int(whom[-1]) - 1
    return random.choice((("kill", whom, for_ms), ("drain", number, for_ms), ("cut topic", number, for_ms)))


# ---- snapshots -----------------------------------------------------------------------------------------


def _snapshots(seed: int) -> Schedule:
    """New ids come after the first snapshot, and pass 6 s or more before the kill. A topic is cut off before them."""
    random = Random(f"{seed}/snapshots")
    setup = Setup(
        Shape.ONE,
        has_events=random.random() < 0.5,
        has_state_dir=True,
        quotas=QuotaSetup(rate=1, window_ms=random.choice((10_000, 30_000)), max_throttle_ms=1_000),
        clients=_clients(random),
    )
    steps: list[Step] = [(random.randrange(3_000), "send", random.choice(setup.clients).name, 0, 1)]
    at_ms = random.choice((2_500, 4_000))
    for _ in range(random.choice((1, 2))):
        killed_ms = at_ms + random.choice((6_000, 7_500, 9_000))
        if setup.has_events:
            cut_ms = at_ms - random.choice((500, 2_000))
            steps.append((cut_ms, "cut topic", 0, killed_ms + 10 - cut_ms))
        steps.append((at_ms, "rogues", "alice", random.choice((1, 2, 3))))
        steps.append((killed_ms, "kill", "gateway-1", random.choice((20, 400))))
        at_ms = killed_ms + random.choice((1_000, 2_000, 3_000))
        steps.append((at_ms, "rogues", "alice", random.choice((1, 2, 3))))
        at_ms += 2_500
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


# ---- fleets --------------------------------------------------------------------------------------------


def _fleet(seed: int) -> Schedule:
    random = Random(f"{seed}/fleet")
    setup = Setup(
        Shape.FLEET,
        has_events=True,
        has_state_dir=random.random() < 0.3,
        quotas=QuotaSetup(rate=1, window_ms=random.choice((500, 2_000)), max_throttle_ms=1_000),
        clients=_clients(random),
    )
    steps: list[Step] = []
    at_ms = 0
    for _ in range(random.randint(5, 8)):
        steps.append((at_ms, "rogues", "alice", random.choice((1, 2))))
        if random.random() < 0.3:
            client = random.choice(setup.clients).name
            steps.append((at_ms + random.randrange(500), "send", client, random.randrange(2), 1))
        at_ms += random.choice((400, 700, 1_000))
    return Schedule(seed, setup, tuple(steps))


# ---- hostile clients -----------------------------------------------------------------------------------


def _hostile(seed: int) -> Schedule:
    random = Random(f"{seed}/hostile")
    shape = random.choice((Shape.ONE, Shape.ONE, Shape.FLEET))
    setup = Setup(
        shape,
        has_login=True,
        has_events=shape is Shape.FLEET,
        weather=random.choice((Weather.CALM, Weather.CHOPPED, Weather.NARROW)),
        quotas=QuotaSetup(rate=random.choice((1, 3)), max_throttle_ms=1_000),
        clients=_clients(random),
    )
    steps: list[Step] = [(random.randrange(300), "hostile", random.choice((3, 6, 12)))]
    for _ in range(random.randint(2, 6)):
        client, at_ms = random.choice(setup.clients).name, random.randrange(3_000)
        steps.append((at_ms, "send", client, random.randrange(2), random.choice((1, 2, 4))))
    if random.random() < 0.5:
        steps.append((random.randrange(2_000), "hostile", 4))
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


# ---- large requests ------------------------------------------------------------------------------------


def _passing(seed: int) -> Schedule:
    """Return a schedule of another theme in which requests arrive in pieces; where it is not one that depends on what
    follows what, with more to send, and connections that end in the middle.
    """
    random = Random(f"{seed}/passing on")
    draw = random.choice((drawn, restless, _outages, _refusals, _held, _held))
    schedule = draw(seed)
    if draw in (_refusals, _held):
        return replace(schedule, setup=replace(schedule.setup, passes_on=True, weather=Weather.CHOPPED))
    weather = random.choice((Weather.CHOPPED, Weather.CHOPPED, Weather.SLOW, Weather.CALM))
    setup = replace(schedule.setup, passes_on=True, weather=weather)
    steps = list(schedule.steps)
    clients = [client.name for client in setup.clients if not client.is_transactional]
    for _ in range(random.randint(3, 8) if clients else 0):
        at_ms = random.randrange(max(1, schedule.length_ms))
        client, partition = random.choice(clients), random.randrange(setup.partitions)
        steps.append((at_ms, "send", client, partition, random.choice((1, 2, 4))))
        end = random.choice((client, client, *gateway_names(setup)))
        nth, soon_ms = random.randrange(3), at_ms + random.choice((1, 3, 10, 30))
        steps += random.choice(
            (
                [(soon_ms, "hold", end, nth, random.choice((20, 400, 1_500)))],
                [(soon_ms, "move", partition, random.randrange(setup.brokers) + 1)],
                [(at_ms, "break off", end, nth, False)],
                [(at_ms, "break off", end, nth, True)],
                [(at_ms, "break off", end, nth, True), (soon_ms, "move", partition, 1)],
            )
        )
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


# ---- byte accounts -------------------------------------------------------------------------------------


BYTE_RATES: Final = (100, 300, 300, 1_000, 1_000)
"""At the slowest a debt lasts longer than a Fetch of a session is held."""


def _accounts(seed: int) -> Schedule:
    """Clients that produce and read more than their rates, while some rate is lifted, or some connection ends."""
    random = Random(f"{seed}/accounts")
    families = random.choices([*FAMILIES, *UNUSUAL, *UNUSUAL], k=random.choice((1, 2)))
    breaks = random.random() < 0.4
    produces, reads = random.choice(((True, False), (False, True), (False, True), (True, True)))
    setup = Setup(
        Shape.ONE,
        brokers=random.choice((1, 2)),
        is_replicated_late=random.random() < 0.3,
        is_long_known=random.random() < 0.1,
        weather=random.choice((Weather.CALM, Weather.CALM, Weather.SLOW, Weather.CHOPPED)),
        readers=tuple(random.choices(list(READINGS), k=random.choice((1, 2, 3)))) if reads else (),
        partitions=random.choice((1, 2)),
        quotas=QuotaSetup(
            rate=random.choice((1, 3, 20)),
            max_throttle_ms=1_000,
            producer_byte_rate=random.choice(BYTE_RATES) if produces else None,
            consumer_byte_rate=random.choice(BYTE_RATES) if reads else None,
        ),
        clients=tuple(ClientSetup(f"{family}-{n + 1}", family) for n, family in enumerate(families)),
    )
    steps: list[Step] = []
    at_ms = 0
    for _ in range(random.randint(4, 10)):
        client, partition = random.choice(setup.clients).name, random.randrange(setup.partitions)
        count = random.choice((1, 3, 3, 10, 40))
        if count == 40 and not produces and client.startswith("hundreds"):
            count = 200
        steps.append((at_ms, "send", client, partition, count))
        if breaks and random.random() < 0.4:
            steps.append((at_ms + random.choice((1, 3, 10)), "garbage", client))
        if random.random() < 0.15:
            steps.append((at_ms, "rogues", "alice", random.choice((1, 2))))
        at_ms += random.choice((5, 200, 1_000, 3_000))
    if random.random() < 0.4:
        steps.append((at_ms, "byte rate", random.choice((None, accounts.LIFTED))))
        at_ms += random.choice((1_000, 3_000, 6_000))
        steps.append((at_ms, "send", random.choice(setup.clients).name, 0, 3))
    if random.random() < 0.2:
        steps.append((random.randrange(at_ms + 1), "drain", 0, 100))
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


# ---- lanes ---------------------------------------------------------------------------------------------


def _lanes(seed: int) -> Schedule:
    """Known ids that write much, readers, and faults in the middle; or a scene in which a grant has to end."""
    random = Random(f"{seed}/lent")
    if random.random() < 0.4:
        return _scene_of_a_lane(seed, random)
    shape = random.choice((Shape.ONE,) * 5 + (Shape.FLEET, Shape.ONE_PORT, Shape.SIDECARS))
    families = random.choices([*FAMILIES, *UNUSUAL], k=random.choice((1, 2)))
    readers = tuple(random.choices(list(READINGS), k=random.choice((0, 0, 1, 2))))
    weather = random.choice((Weather.CALM, Weather.CHOPPED, Weather.CHOPPED, Weather.NARROW, Weather.SLOW))
    if weather is Weather.SLOW and "reconnecting" in (*families, *readers):
        weather = Weather.CHOPPED  # a connection for each request would take minutes
    setup = Setup(
        shape,
        brokers=random.choice((1, 2)),
        partitions=random.choice((1, 2, 3)),
        is_replicated_late=random.random() < 0.5,
        has_login=random.random() < 0.2,
        has_events=shape.is_fleet or random.random() < 0.4,
        is_long_known=random.random() < 0.6,
        lend_after=random.choice((0, 0, 1)),
        lanes_only_look=Random(f"{seed}/tls").random() < 0.25,
        passes_on=random.random() < 0.3,
        weather=weather,
        readers=readers,
        quotas=QuotaSetup(rate=random.choice((1, 3, 20)), burst=1.0, max_throttle_ms=1_000),
        clients=tuple(ClientSetup(f"{family}-{n + 1}", family) for n, family in enumerate(families)),
    )
    steps: list[Step] = []
    at_ms, faults = 0, random.choice((0.0, 0.5, 0.5))
    for _ in range(random.randint(3, 8)):
        client, partition = random.choice(setup.clients).name, random.randrange(setup.partitions)
        for _ in range(random.choice((2, 5, 10))):
            steps.append((at_ms, "send", client, partition, random.choice((1, 1, 2, 5))))
            at_ms += random.choice((1, 3, 10, 40))
        if random.random() < faults:
            steps.append((max(0, at_ms - random.choice((1, 10, 40))), *_in_the_middle(random, setup, client)))
        at_ms += random.choice((0, 20, 300, 1_200))
    return Schedule(seed, setup, tuple(sorted(steps, key=lambda step: step[0])))


def _in_the_middle(random: Random, setup: Setup, client: str) -> tuple[object, ...]:
    end = random.choice((client, *gateway_names(setup), "broker-1"))
    nth, for_ms = random.randrange(4), random.choice((20, 100, 400))
    gateway = random.choice(gateway_names(setup))
    return random.choice(
        (
            ("cut", end, nth),
            ("hold", end, nth, for_ms),
            ("half-close", client, nth),
            ("break off", random.choice((client, gateway)), nth, random.random() < 0.5),
            ("move", random.randrange(setup.partitions), random.randrange(setup.brokers) + 1),
            ("move", random.randrange(setup.partitions), random.randrange(setup.brokers) + 1),
            ("mode", None, random.random() < 0.5),
            ("rate", random.choice((1, 20))),
            ("exempt", "alice", random.random() < 0.5),
            ("rogues", "alice", 2),
            ("garbage", client),
            ("crash", client),
            ("freeze", gateway, for_ms),
            ("kill", gateway, for_ms),
            ("drain", int(gateway[-1]) - 1, for_ms),
        )
    )


def _scene_of_a_lane(seed: int, random: Random) -> Schedule:
    is_held = random.random() < 0.5
    setup = Setup(
        Shape.ONE,
        partitions=3 if is_held else 2,
        fresh_partitions=int(is_held),
        is_long_known=True,
        lend_after=0,
        weather=Weather.EVEN,
        quotas=QuotaSetup(
            rate=1,
            window_ms=random.choice((500, 2_000)),
            max_throttle_ms=1_000,
            producer_byte_rate=scenes.BYTE_RATE if is_held else scenes.SET_BYTE_RATE,
        ),
        clients=(ClientSetup("java-1", "java"),),
    )
    scene = scenes.held_beside_a_lane if is_held else scenes.a_byte_rate_is_set
    return Schedule(seed, setup, scenes.steps(scene, random, setup))


_DRAWN: Final[dict[Theme, Callable[[int], Schedule]]] = {
    Theme.ANYTHING: drawn,
    Theme.RESTLESS: restless,
    Theme.REFUSALS: _refusals,
    Theme.HELD: _held,
    Theme.ONE_PORT: _one_port,
    Theme.OUTAGES: _outages,
    Theme.SNAPSHOTS: _snapshots,
    Theme.FLEET: _fleet,
    Theme.HOSTILE: _hostile,
    Theme.PASSING: _passing,
    Theme.ACCOUNTS: _accounts,
    Theme.LANES: _lanes,
}
