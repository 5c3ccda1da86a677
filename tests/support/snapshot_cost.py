"""Cost of snapshots: `python -m tests.support.snapshot_cost [USERS IDS_PER_USER CHANGED]`.

Gives each user ids in use throughout `remember`, saves all of them into a temporary directory, then lets some users use
one id more and saves those. Prints sizes, the processor time of the event loop and of the disk thread, and the longest
step of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Final, NamedTuple

import structlog

from pidgate.gateway.state.state_dir import About, StateDir
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota

ROUNDS: Final = 5
NOW_MS: Final = 90_000_000
Export = Callable[[bool], Iterator[UserState | None]]


def filled(users: int, ids_per_user: int) -> ProducerIdQuota:
    """Return a quota of users that are alike but for their names."""
    quotas = Quotas(Mode.ENFORCE, ProducerIdSettings(), default=UserQuota.per_window(ids_per_user))
    made = ProducerIdQuota(quotas, lambda: 7, 0)
    settings = quotas.producer_ids
    for slice_no in range(settings.layers, -1, -1):
        now_ms = NOW_MS - slice_no * settings.slice_ms
        for producer_id in range(ids_per_user):
            made.insert_uncharged("first", producer_id, now_ms)
    (first,) = made.restorer.export_users(NOW_MS)
    state = ProducerIdQuota(quotas, lambda: 7, 0)
    for number in range(users):
        state.restorer.import_user(replace(first, user=f"user-{number}"), NOW_MS)
    return state


class Saving(NamedTuple):
    """One save: bytes, s of processor time of the loop's thread and of all, its longest step, and how long it took."""

    size_bytes: int
    loop_s: float
    all_s: float
    longest_s: float
    took_s: float


async def saved(state_dir: StateDir, export: Export, before_bytes: int) -> Saving:
    """Save once."""
    longest_s = 0.0

    async def note_steps() -> None:
        nonlocal longest_s
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0.0002)
            now_s = time.thread_time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s

    noting = asyncio.ensure_future(note_steps())
    began_s, loop_s, all_s = time.monotonic(), time.thread_time(), time.process_time()
    if not await state_dir.save(export, About(1, {})):
        raise SystemExit("the snapshot could not be written")
    noting.cancel()
    return Saving(
        state_dir.snapshot_bytes - before_bytes,
        time.thread_time() - loop_s,
        time.process_time() - all_s,
        longest_s,
        time.monotonic() - began_s,
    )


async def measure(users: int, ids_per_user: int, changed: int) -> None:
    """Print a line for a save of all users, and one for saves of the changed ones."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    state = filled(users, ids_per_user)
    restorer = state.restorer
    print(f"{users} users with {ids_per_user} ids each: {state.table.filter_bytes / 1e6:.0f} MB of filters")
    with tempfile.TemporaryDirectory() as path:
        state_dir = StateDir(path)
        state_dir.load()
        found = [await saved(state_dir, lambda _: restorer.export_users(NOW_MS), 0)]
        _print("all users", found)
        found.clear()
        for number in range(ROUNDS):
            for one in range(changed):
                producer_id = 10**9 + number * changed + one
                state.insert_uncharged(f"user-{one * users // changed}", producer_id, NOW_MS)
            before_bytes = state_dir.snapshot_bytes
            found.append(await saved(state_dir, lambda _: restorer.export_changed(NOW_MS), before_bytes))
        _print(f"{changed} changed users", found)
        await state_dir.close()


def _print(what: str, found: list[Saving]) -> None:
    size_bytes, loop_s, all_s, longest_s, took_s = (median(column) for column in zip(*found, strict=True))
    print(
        f"{what}: {size_bytes / 1e6:.1f} MB in {took_s:.2f} s; processor time {all_s * 1e3:.0f} ms, "
        f"{loop_s * 1e3:.0f} of them in the event loop; its longest step {longest_s * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    asyncio.run(measure(*map(int, sys.argv[1:] or (1_000, 10_000, 500))))
