"""All users of one worker on one day: who lives, under which producer id, from which address, under which name.

What lasts longer than a day is planned once for all days and kept while a process of the cluster works on its days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pidgate.pipeline.history.cast import Deployment, User, cast
from pidgate.pipeline.history.fleets import planned
from pidgate.pipeline.history.lives import Lives
from pidgate.pipeline.history.loops import of_day
from pidgate.pipeline.history.world import DAY_MS, Times, World, dice

Words = Sequence[str]
_MOST_DEPLOYMENTS = 8
_POD_BITS = 44

BLOCK = 1_000
"""Ids as brokers hand them out (KIP-730): in a row out of blocks, which each broker gets in its turn.

Tasks that know nothing of each other must not give one id twice. So each shard of users has two brokers of its own for
processes that last and two for those that do not, and takes every so-many-th block of the day.
"""
BLOCKS_A_DAY = 100_000
LASTING, SHORT = 0, 1


def brokers_of(world: World) -> range:
    return range(1, 4 * world.shards + 1)


def allocated(
    world: World, roll: np.random.Generator, day: int, shard: int, sort: int, at_ms: Times
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An id and the broker that gave it for each arrival of one day; arrivals in order of time. Day -1: before."""
    broker_of = roll.integers(0, 2, len(at_ms))
    place = np.zeros(len(at_ms), dtype=np.int64)
    wanted: list[tuple[int, int, int]] = []
    for broker in (0, 1):
        mine = np.flatnonzero(broker_of == broker)
        place[mine] = np.arange(len(mine))
        wanted += [(int(at_ms[one]), broker, number) for number, one in enumerate(mine[::BLOCK])]
    turn = {(broker, number): turn for turn, (_, broker, number) in enumerate(sorted(wanted))}
    most = max((number for _, number in turn), default=0) + 1
    turns = np.zeros((2, most), dtype=np.int64)
    for (broker, number), one in turn.items():
        turns[broker, number] = one
    mine_of_all = 2 * shard + sort
    block = (day + 1) * BLOCKS_A_DAY + turns[broker_of, place // BLOCK] * 2 * world.shards + mine_of_all
    return block * BLOCK + place % BLOCK, 1 + 2 * mine_of_all + broker_of


@dataclass(frozen=True)
class Plan:
    """The lasting lives of a shard, in order of time. `opens`: the first one of its id that anyone can see."""

    users: tuple[User, ...]
    lives: Lives
    producer_id: NDArray[np.int64]
    node_id: NDArray[np.int64]
    opens: NDArray[np.bool_]


@lru_cache(maxsize=2)
def plan(world: World, shard: int) -> Plan:
    users = tuple(cast(world, number) for number in world.users_of(shard))
    lives = Lives.together([planned(world, user) for user in users])
    lives = lives.where(np.lexsort((lives.pod, lives.deployment, lives.user, lives.start_ms)))
    producer_id, node_id = np.zeros(len(lives), np.int64), np.zeros(len(lives), np.int64)
    opens = np.ones(len(lives), bool)
    kept = lives.identity >= 0
    key = (lives.user.astype(np.int64) * _MOST_DEPLOYMENTS + lives.deployment) * 100_000 + lives.identity
    # Lives with an id of their own count each for itself.
    key = np.where(kept, key, -1 - np.arange(len(lives)))
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    opens[:] = False
    opens[first] = True
    days = np.clip((lives.start_ms[first] - world.begin_ms) // DAY_MS, -1, world.days)
    given = np.zeros(len(first), np.int64)
    nodes = np.zeros(len(first), np.int64)
    for day in np.unique(days):
        today = np.flatnonzero(days == day)
        today = today[np.argsort(lives.start_ms[first[today]], kind="stable")]
        roll = dice(world.seed, "lasting ids", int(day) + 1, shard)
        given[today], nodes[today] = allocated(
            world, roll, int(day), shard, LASTING, lives.start_ms[first[today]]
        )
    producer_id[:], node_id[:] = given[of], nodes[of]
    return Plan(users, lives, producer_id, node_id, opens)


@dataclass(frozen=True)
class Day:
    """Everyone who lives on one day: a plan's lives that overlap it, and those made up for it."""

    world: World
    users: tuple[User, ...]
    deployments: tuple[Deployment, ...]
    lives: Lives
    user_place: NDArray[np.int64]
    """Into `users`."""
    deployment_place: NDArray[np.int64]
    """Into `deployments`."""
    producer_id: NDArray[np.int64]
    node_id: NDArray[np.int64]
    opens: NDArray[np.bool_]
    is_lasting: NDArray[np.bool_]
    client_code: NDArray[np.int32]
    client_words: Words
    address_code: NDArray[np.int32]
    address_words: Words
    pod_key: NDArray[np.uint64]

    def of_deployment(self, name: str) -> NDArray[np.float64]:
        """A number of the deployment of each life."""
        return np.array([float(getattr(one, name)) for one in self.deployments])[self.deployment_place]


def day_of(world: World, shard: int, day: int) -> Day:
    known = plan(world, shard)
    begin_ms, end_ms = world.midnight_ms(day), world.midnight_ms(day + 1)
    chosen = np.flatnonzero((known.lives.start_ms < end_ms) & (known.lives.end_ms > begin_ms))
    short = Lives.together([of_day(world, user, day) for user in known.users])
    short = short.where(np.lexsort((short.pod, short.deployment, short.user, short.start_ms)))
    roll = dice(world.seed, "short ids", day, shard)
    # Who ends before anything is sent has asked for an id all the same.
    short_ids, short_nodes = allocated(world, roll, day, shard, SHORT, short.start_ms)
    lives = Lives.together([known.lives.where(chosen), short])
    deployments = tuple(one for user in known.users for one in user.deployments)
    places = np.cumsum([0, *(len(user.deployments) for user in known.users)])[:-1]
    user_place = (lives.user.astype(np.int64) - shard) // world.shards
    deployment_place = places[user_place] + lives.deployment.astype(np.int64)
    named = _named(world, deployments, deployment_place, lives)
    return Day(
        world=world,
        users=known.users,
        deployments=deployments,
        lives=lives,
        user_place=user_place,
        deployment_place=deployment_place,
        producer_id=np.concatenate([known.producer_id[chosen], short_ids]),
        node_id=np.concatenate([known.node_id[chosen], short_nodes]),
        opens=np.concatenate([known.opens[chosen], np.ones(len(short), bool)]),
        is_lasting=np.arange(len(lives)) < len(chosen),
        client_code=named[0],
        client_words=named[1],
        address_code=named[2],
        address_words=named[3],
        pod_key=named[4],
    )


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's last step: numbers that look like nothing, from numbers in a row."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _named(
    world: World, deployments: Sequence[Deployment], deployment_place: NDArray[np.int64], lives: Lives
) -> tuple[NDArray[np.int32], Words, NDArray[np.int32], Words, NDArray[np.uint64]]:
    """Client ids and addresses as clients would have them, and a key of the pod."""
    owner = lives.user.astype(np.int64) * _MOST_DEPLOYMENTS + lives.deployment
    salt = mixed(np.array([world.seed], dtype=np.uint64))[0]
    key = mixed(((owner.astype(np.uint64) << np.uint64(_POD_BITS)) + lives.pod.astype(np.uint64)) ^ salt)
    pods, first, pod = np.unique(key, return_index=True, return_inverse=True)
    addresses = [
        _address(int(one), deployments[deployment_place[at]], int(lives.pod[at]))
        for one, at in zip(pods, first, strict=True)
    ]
    by_address = {word: code for code, word in enumerate(dict.fromkeys(addresses))}
    address_code = np.array([by_address[word] for word in addresses], np.int32)[pod] if len(pods) else pod
    single = np.array(["{n}" in one.client_id or "{hex}" in one.client_id for one in deployments])[
        deployment_place
    ]
    words: dict[str, int] = {}
    of_pod = np.array(
        [
            words.setdefault(
                deployments[deployment_place[at]].client_id.replace("{pod}", _pod(int(one))), len(words)
            )
            for one, at in zip(pods, first, strict=True)
        ],
        np.int32,
    )
    client_code = of_pod[pod] if len(pods) else np.zeros(0, np.int32)
    for life in np.flatnonzero(single):
        made_up = deployments[deployment_place[life]].client_id.format(
            pod="",
            n=lives.n[life],
            hex=f"{(int(key[life]) + 2_654_435_761 * int(lives.n[life])) % 2**64:016x}",
        )
        client_code[life] = words.setdefault(made_up, len(words))
    return client_code, list(words), address_code.astype(np.int32), list(by_address), key


def _pod(key: int) -> str:
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[key // 27**place % 27] for place in range(5))


def _address(key: int, deployment: Deployment, pod: int) -> str:
    if deployment.addresses:
        behind = sum(deployment.client_id.encode()) % 250 + pod % deployment.addresses
        return f"203.0.{113 + deployment.number}.{1 + behind}"
    return f"10.{key % 200 + 8}.{key // 1_000 % 256}.{key // 1_000_000 % 254 + 1}"
