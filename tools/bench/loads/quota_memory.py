"""Memory of the quota alone: `python -m tools.bench.loads.quota_memory KIND '<plan>'`.

Prints one JSON object.

The real `Admission` in a process of its own, at a simulated time, with everything that it keeps: filters,
refusals, queues, owners, connections' caches, counters. RSS before the first id and after.
"""

import gc
import json
import os
import random
import sys
import time
from collections import deque
from statistics import median
from typing import Final

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Close, Forward, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tools.bench.process_cost import cost_of

Measured = dict[str, float]
Plan = dict[str, float]

SWEEP_MS: Final = 1_000
CHECKS: Final = 200_000
CHECK_ROUNDS: Final = 5
MOST_OPEN: Final = 2_000
IDS_OF_CONNECTION: Final = 10


class Load:
    """One Admission that enforces `rate` for everyone, its connections and its clock."""

    def __init__(self, rate: float, settings: ProducerIdSettings | None = None) -> None:
        self.quotas = Quotas(
            Mode.ENFORCE, settings or ProducerIdSettings(), default=UserQuota.per_window(rate)
        )
        seeds = random.Random(936)
        self.state = ProducerIdQuota(self.quotas, lambda: seeds.getrandbits(64), 0)
        self.admission = Admission(self.quotas, lambda: seeds.getrandbits(64), 0, state=self.state)
        self.now_ms = 0
        self.judged = 0
        self._connections = 0
        self._sweep_ms = 0
        gc.collect()
        self._rss_before = _rss_bytes()

    def connect(self, user: str) -> Client:
        self._connections += 1
        return Client(user, "app", "10.0.0.1", self._connections)

    def produce(self, client: Client, ids: list[int]) -> Forward | Refuse | Close:
        """One request with the first batch of each id; a connection that has to be closed is."""
        self.judged += len(ids)
        batches = [(producer_id, 0, 0, b"orders", 0) for producer_id in ids]
        verdict = self.admission.judge(client, batches, transactional=False, now_ms=self.now_ms)
        if isinstance(verdict, Close):
            self.close(client)
        assert isinstance(verdict, Forward | Refuse | Close), verdict
        return verdict

    def close(self, client: Client) -> None:
        self.admission.connection_closed(client.connection_id, self.now_ms)

    def pass_to(self, now_ms: int) -> None:
        """Time goes on; what is over is swept once a simulated second, or once a step that is longer."""
        self.now_ms = now_ms
        if now_ms >= self._sweep_ms:
            self.admission.sweep(now_ms)
            self._sweep_ms = now_ms + SWEEP_MS

    def grown_bytes(self) -> int:
        gc.collect()
        return _rss_bytes() - self._rss_before


def _rss_bytes() -> int:
    return cost_of(os.getpid()).rss_bytes


def steady(plan: Plan) -> Measured:
    """`users` x `live_ids`, each id used once in every slice over `remembers` times the time to remember."""
    users, live_ids = int(plan["users"]), int(plan["live_ids"])
    load = Load(plan["rate"])
    settings = load.quotas.producer_ids
    slices = int(plan["remembers"] * settings.layers) + 1
    rounds = live_ids // IDS_OF_CONNECTION
    names = [f"user-{number}" for number in range(users)]
    is_open: deque[Client] = deque()
    peak_bytes = refused = 0
    for slice_no in range(slices):
        for turn in range(rounds):
            load.pass_to(slice_no * settings.slice_ms + turn * settings.slice_ms // rounds)
            for number, user in enumerate(names):
                first = number * live_ids + turn * IDS_OF_CONNECTION
                ids = list(range(first, first + IDS_OF_CONNECTION))
                client = load.connect(user)
                if slice_no == 0:
                    for producer_id in ids:
                        load.admission.owners.learnt(user, producer_id, 0, client.connection_id)
                refused += not isinstance(load.produce(client, ids), Forward)
                is_open.append(client)
                if len(is_open) > MOST_OPEN:
                    load.close(is_open.popleft())
        peak_bytes = max(peak_bytes, load.grown_bytes())
        filters = f"{load.state.table.filter_bytes / 1e6:.1f} in filters"
        print(f"slice {slice_no}: {load.grown_bytes() / 1e6:.1f} MB, {filters}", file=sys.stderr, flush=True)
    known = sum(snapshot.live_ids for snapshot in load.admission.user_snapshots(load.now_ms))
    return {
        "grown_bytes": load.grown_bytes(),
        "peak_bytes": peak_bytes,
        "filter_bytes": load.state.table.filter_bytes,
        "live_ids": known,
        "refused_requests": refused,
        "overfull": load.state.table.overfull_inserts,
        "judged": load.judged,
    }


def two_windows(plan: Plan) -> Measured:
    """`users` x `live_ids` in two layers of a window each, every id used in both; then what a check costs.

    The filters alone, as the quota fills them: no connections, nothing refused. Checks are of ids drawn at random
    over all users: known ones, which are looked for up to the last of their bits, and ones never seen.
    """
    users, live_ids = int(plan["users"]), int(plan["live_ids"])
    window_ms = 3_600_000
    load = Load(live_ids, ProducerIdSettings(window_ms=window_ms, remember_ms=2 * window_ms, layers=2))
    names = [f"user-{number}" for number in range(users)]
    for window in range(2):
        load.pass_to(window * window_ms)
        for number, user in enumerate(names):
            for producer_id in range(number * live_ids, (number + 1) * live_ids):
                load.state.insert_uncharged(user, producer_id, load.now_ms)
    grown_bytes = load.grown_bytes()
    dice = random.Random(13)
    drawn = [dice.randrange(users) for _ in range(CHECKS)]
    known = [(names[number], number * live_ids + dice.randrange(live_ids)) for number in drawn]
    unknown = [(names[number], users * live_ids + dice.randrange(1 << 40)) for number in drawn]
    return {
        "grown_bytes": grown_bytes,
        "filter_bytes": load.state.table.filter_bytes,
        "live_ids": users * live_ids,
        **_checked(load, known, "known"),
        **_checked(load, unknown, "unknown"),
    }


def many_users(plan: Plan) -> Measured:
    """`users` of whom each brings one id and closes its connection: what is kept of a user."""
    load = Load(100)
    users = int(plan["users"])
    for number in range(users):
        client = load.connect(f"user-{number}")
        load.produce(client, [number])
        load.close(client)
    return {"grown_bytes": load.grown_bytes(), "users": users}


def _checked(load: Load, asked: list[tuple[str, int]], kind: str) -> Measured:
    remembers, now_ms = load.state.table.remembers, load.now_ms
    spent_us = []
    for _ in range(CHECK_ROUNDS):
        found = 0
        began_ns = time.process_time_ns()
        for user, producer_id in asked:
            found += remembers(user, producer_id, now_ms)
        spent_us.append((time.process_time_ns() - began_ns) / len(asked) / 1e3)
    return {f"check_{kind}_us": median(spent_us), f"found_{kind}": found / len(asked)}


def rogue(plan: Plan) -> Measured:
    """One user brings `ids` new ids, `per_s` each second, under a quota of 100 an hour; one in five comes back
    once.
    """
    ids = int(plan["ids"])
    load = Load(100)
    waiting: deque[tuple[int, Client, int]] = deque()
    admitted = closed = 0
    at_bytes: Measured = {}
    for number in range(ids):
        load.pass_to(int(number * 1_000 / plan["per_s"]))
        while waiting and waiting[0][0] <= load.now_ms:
            _, client, producer_id = waiting.popleft()
            admitted += isinstance(load.produce(client, [producer_id]), Forward)
            load.close(client)
        client = load.connect("rogue")
        load.admission.owners.learnt("rogue", number, 0, client.connection_id)
        verdict = load.produce(client, [number])
        admitted += isinstance(verdict, Forward)
        closed += isinstance(verdict, Close)
        if isinstance(verdict, Refuse) and number % 5 == 0:
            waiting.append((load.now_ms + verdict.throttle_time_ms, client, number))
        else:
            load.close(client)
        if (number + 1) % (ids // 5) == 0:
            at_bytes[f"grown_bytes_{5 * (number + 1) // ids}"] = load.grown_bytes()
            print(f"{number + 1} ids: {load.grown_bytes() / 1e6:.1f} MB", file=sys.stderr, flush=True)
    return {**at_bytes, "admitted": admitted, "closed": closed, "judged": load.judged}


if __name__ == "__main__":
    kind, plan_json = sys.argv[1:]
    loads = {"steady": steady, "rogue": rogue, "two_windows": two_windows, "many_users": many_users}
    print(json.dumps(loads[kind](json.loads(plan_json))))
