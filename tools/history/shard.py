"""All users of one shard on one day: lives, producer ids, addresses and names.

Lives longer than a day are planned once for all days; a worker process caches the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.history.cast import Deployment, User
from tools.history.lives import Lives, chosen, in_order, together
from tools.history.makers import MAKERS
from tools.history.world import DAY_MS, Times, World, dice

Words = Sequence[str]
_MOST_DEPLOYMENTS = 8
_POD_BITS = 44

BLOCK = 1_000
"""Size of id blocks (KIP-730), which brokers receive in turn and give out in order.

Independent tasks must not give out the same id. Each shard of users therefore has two brokers for lasting
processes and two for short ones, and takes every n-th block of the day.
"""
BLOCKS_A_DAY = 100_000
LASTING, SHORT = 0, 1


def brokers_of(world: World) -> range:
    return range(1, 4 * world.shards + 1)


def allocated(
    world: World, roll: np.random.Generator, day: int, shard: int, sort: int, at_ms: Times
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an id and its broker for each arrival of one day, sorted by time. Day -1: before the history."""
    broker_of = roll.integers(0, 2, len(at_ms))
    place = np.where(broker_of == 0, np.cumsum(broker_of == 0), np.cumsum(broker_of)) - 1
    # The arrival that exhausts a broker's block takes the next block in turn.
    begins = np.flatnonzero(place % BLOCK == 0)
    begins = begins[np.lexsort((broker_of[begins], at_ms[begins]))]
    turns = np.zeros((2, len(begins)), dtype=np.int64)
    turns[broker_of[begins], place[begins] // BLOCK] = np.arange(len(begins))
    mine_of_all = 2 * shard + sort
    block = (day + 1) * BLOCKS_A_DAY + turns[broker_of, place // BLOCK] * 2 * world.shards + mine_of_all
    return block * BLOCK + place % BLOCK, 1 + 2 * mine_of_all + broker_of


@lru_cache(maxsize=2)
def plan(world: World, shard: int) -> tuple[tuple[User, ...], Lives]:
    """Return the users of a shard, and their lasting lives sorted by time."""
    maker = MAKERS[world.fleet]
    users = tuple(maker.user(world, number) for number in world.users_of(shard))
    lives = in_order(together([maker.planned(world, user) for user in users]))
    key = (lives.user.astype(np.int64) * _MOST_DEPLOYMENTS + lives.deployment) * 100_000 + lives.identity
    # Lives with an own id get a key each.
    key = np.where(lives.identity >= 0, key, -1 - np.arange(len(lives)))
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    lives.opens[first] = True
    opening = chosen(lives, first)
    days = np.clip((opening.start_ms - world.begin_ms) // DAY_MS, -1, world.days)
    for day in np.unique(days):
        today = np.flatnonzero(days == day)
        today = today[np.argsort(opening.start_ms[today], kind="stable")]
        roll = dice(world.seed, "lasting ids", int(day) + 1, shard)
        opening.producer_id[today], opening.node_id[today] = allocated(
            world, roll, int(day), shard, LASTING, opening.start_ms[today]
        )
    lives.producer_id, lives.node_id = opening.producer_id[of], opening.node_id[of]
    return users, lives


@dataclass(frozen=True)
class Day:
    """All lives of one day: planned ones that overlap it, and those generated for it."""

    world: World
    users: tuple[User, ...]
    deployments: tuple[Deployment, ...]
    lives: Lives
    user_place: NDArray[np.int64]
    """Index of `users`."""
    deployment_place: NDArray[np.int64]
    """Index of `deployments`."""
    client_code: NDArray[np.int32]
    client_words: Words
    address_code: NDArray[np.int32]
    address_words: Words
    pod_key: NDArray[np.uint64]

    def of_deployment(self, name: str) -> NDArray[Any]:
        """Return the deployment's attribute for each life."""
        return np.array([getattr(one, name) for one in self.deployments])[self.deployment_place]

    def leader_of(self, life: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the broker that a life's producer writes to."""
        brokers = brokers_of(self.world)
        return brokers.start + (mixed(self.pod_key[life] + np.uint64(3)) % np.uint64(len(brokers))).astype(
            np.int64
        )


def day_of(world: World, shard: int, day: int) -> Day:
    users, lasting = plan(world, shard)
    overlaps = (lasting.start_ms < world.midnight_ms(day + 1)) & (lasting.end_ms > world.midnight_ms(day))
    lasting = chosen(lasting, overlaps)
    short = in_order(together([MAKERS[world.fleet].of_day(world, user, day) for user in users]))
    roll = dice(world.seed, "short ids", day, shard)
    # Producers that end before sending have also requested an id.
    short.producer_id, short.node_id = allocated(world, roll, day, shard, SHORT, short.start_ms)
    short.opens = True
    lives = together([lasting, short])
    deployments = tuple(one for user in users for one in user.deployments)
    places = np.cumsum([0, *(len(user.deployments) for user in users)])[:-1]
    user_place = (lives.user.astype(np.int64) - shard) // world.shards
    deployment_place = places[user_place] + lives.deployment.astype(np.int64)
    named = _named(world, deployments, deployment_place, lives)
    return Day(world, users, deployments, lives, user_place, deployment_place, *named)


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's last step: pseudo-random numbers from consecutive ones."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _named(
    world: World, deployments: Sequence[Deployment], deployment_place: NDArray[np.int64], lives: Lives
) -> tuple[NDArray[np.int32], Words, NDArray[np.int32], Words, NDArray[np.uint64]]:
    """Return realistic client ids and addresses, and a key of the pod."""
    owner = lives.user.astype(np.int64) * _MOST_DEPLOYMENTS + lives.deployment
    salt = mixed(np.array([world.seed], dtype=np.uint64))[0]
    key = mixed(((owner.astype(np.uint64) << np.uint64(_POD_BITS)) + lives.pod.astype(np.uint64)) ^ salt)
    pods, first, pod = np.unique(key, return_index=True, return_inverse=True)
    of_pods = [deployments[place] for place in deployment_place[first]]
    addresses = (
        _address(int(one), deployment, int(number))
        for one, deployment, number in zip(pods, of_pods, lives.pod[first], strict=True)
    )
    address_code, address_words = numbered(addresses)
    names = [
        deployment.client_id.replace("{pod}", _pod(int(one)))
        for one, deployment in zip(pods, of_pods, strict=True)
    ]
    is_single = np.array(["{n}" in one.client_id or "{hex}" in one.client_id for one in deployments])
    singles = np.flatnonzero(is_single[deployment_place])
    names += [
        deployments[deployment_place[life]].client_id.format(
            pod="",
            n=n,
            hex=f"{(int(key[life]) + 2_654_435_761 * int(n)) % 2**64:016x}",
        )
        for life, n in zip(singles, lives.n[singles], strict=True)
    ]
    code, client_words = numbered(names)
    client_code = code[pod]
    client_code[singles] = code[len(pods) :]
    return client_code, client_words, address_code[pod], address_words, key


def numbered(words: Iterable[str]) -> tuple[NDArray[np.int32], Words]:
    """Number words by first appearance; return the number of each, and the words."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(word, len(numbers)) for word in words]
    return np.array(codes, np.int32), list(numbers)


def _pod(key: int) -> str:
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[key // 27**place % 27] for place in range(5))


def _address(key: int, deployment: Deployment, pod: int) -> str:
    if deployment.addresses:
        behind = sum(deployment.client_id.encode()) % 250 + pod % deployment.addresses
        return f"203.0.{113 + deployment.number}.{1 + behind}"
    return f"10.{key % 200 + 8}.{key // 1_000 % 256}.{key // 1_000_000 % 254 + 1}"
