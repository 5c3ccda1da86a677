"""Records a state directory as this version writes it, for later versions to read.

    python -m tests.support.record_state tests/data/state-v1

Once recorded it is never written again: when the format's version goes up, record the new one beside it.
`expected.json` says in plain words what is in it. Only what the format keeps is told, not how it looks.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import structlog

from pidgate.events.definitions import DecisionEvent
from pidgate.events.writing import to_json
from pidgate.gateway.state.state_dir import LOCK_FILE, StateDir
from pidgate.quota.entities import unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.verdicts import Reason

HOUR_MS: Final = 3_600_000
WRITTEN_WALL_MS: Final = 1_795_000_000_000
IDS: Final = {
    "alice": range(4_000, 4_060),
    "Zoë Ünal": range(9_000, 9_300),
    unidentified("GSSAPI"): range(70_000, 70_005),
}
IN_TRANSACTIONS: Final = "Zoë Ünal"
JOURNALLED: Final = [4_060, 4_061, 4_062]
TRANSACTIONAL_IDS: Final = range(10**18, 10**18 + 7)
"""Of alice, who has 3 tokens of 10 left."""
OFFSETS: Final = {0: 17, 1: 0, 11: 123_456_789_012}


def quotas() -> Quotas:
    """alice has a rate, the others none; a bound for the whole cluster."""
    alice = UserQuota(100_000, transactional_ids_rate_milli=10_000)
    return Quotas(mode=Mode.ENFORCE, users={"alice": alice}, cluster_rate_milli=5_000_000)


def recorded_quota(now_ms: int) -> ProducerIdQuota:
    """A day and a half of history: ids of four slices, alice's balance at 37.5 tokens."""
    seeds = iter(range(11, 1_000, 7))
    quota = ProducerIdQuota(quotas(), lambda: next(seeds), now_ms - 36 * HOUR_MS)
    for user, ids in IDS.items():
        for place, producer_id in enumerate(ids):
            used_ms = now_ms - 20 * HOUR_MS + 20 * HOUR_MS * place // len(ids)
            quota.restorer.restore_id(
                user, producer_id, used_ms, now_ms, transactional=user == IN_TRANSACTIONS
            )
    quota.restorer.restore_tokens("alice", 75, 2, now_ms)
    for hashed in TRANSACTIONAL_IDS:
        quota.restorer.restore_transactional_id("alice", hashed, now_ms, now_ms, Reason.FIRST_SEEN)
    return quota


def decision(producer_id: int, seq: int) -> bytes:
    return to_json(
        DecisionEvent(
            cluster="Fq3fQZrsQZq1",
            gateway_id="gw-1",
            incarnation="3a9d",
            seq=seq,
            wall_time_ms=WRITTEN_WALL_MS + seq,
            decision_time_ms=seq,
            user="alice",
            producer_id=producer_id,
            epoch=0,
            transactional=False,
            topic="orders",
            partition=3,
            base_sequence=0,
            request_partitions=1,
            decision="admit",
            reason="first_seen",
            quota_version=1,
        )
    )


async def record(directory: Path) -> None:
    now_ms = 40 * HOUR_MS
    quota = recorded_quota(now_ms)
    state_dir = StateDir(directory)
    await asyncio.to_thread(state_dir.load)
    saved = await state_dir.save(
        quota.restorer.export_users(now_ms),
        written_wall_ms=WRITTEN_WALL_MS,
        cluster_bucket=quota.restorer.export_cluster_bucket(now_ms),
        offsets=OFFSETS,
        grace_until_wall_ms=WRITTEN_WALL_MS + HOUR_MS,
    )
    assert saved
    for seq, producer_id in enumerate(JOURNALLED):
        state_dir.append(decision(producer_id, seq + 1))
    await state_dir.close()
    (directory / LOCK_FILE).unlink()
    expected = {
        "written_wall_ms": WRITTEN_WALL_MS,
        "grace_until_wall_ms": WRITTEN_WALL_MS + HOUR_MS,
        "offsets": {str(partition): offset for partition, offset in OFFSETS.items()},
        "users": [
            {
                "user": user,
                "first_id": ids.start,
                "ids": len(ids),
                "transactional": user == IN_TRANSACTIONS,
                "tokens": quota.status(user, now_ms).tokens,
            }
            for user, ids in IDS.items()
        ],
        "cluster_tokens": 5_000,
        "journalled_ids": JOURNALLED,
        "transactional_ids": list(TRANSACTIONAL_IDS),
        "transactional_ids_let_in": 4,
    }
    (directory / "expected.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    with structlog.testing.capture_logs():
        asyncio.run(record(Path(sys.argv[1])))
