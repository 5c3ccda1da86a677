"""The journal holds what is remembered, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pidgate.events.redaction import TRANSACTIONAL_ID, hash64
from pidgate.events.writing import to_json
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.state import new_id_question
from tests.simulator.gateway import configured
from tests.support.state_dirs import opened
from tests.unit.gateway.state import test_event_applier
from tests.unit.gateway.state.test_decision_scan import decision
from tests.unit.gateway.state.test_event_applier import (
    NOW_MS,
    TOKEN,
    WALL_MS,
    lifecycle,
)


def test_a_journal_brings_back_transactional_ids_and_what_they_cost(tmp_path: Path) -> None:
    names = ["first", "second", "third"]
    written = [
        to_json(decision(user="alice")),
        *(test_event_applier.TestTransactionalIds._record(name, 60_000).value for name in names),
    ]

    async def run() -> list[bytes]:
        settings = configured("gw", "broker:1", state_dir=str(tmp_path))
        log = EventLog(settings, OwnClient.from_settings(settings), lambda _topic_id: None)
        assert log.state_dir is not None
        await asyncio.to_thread(log.state_dir.load)
        for value in (to_json(lifecycle()), *written):
            log.publish("alice", value)
        await log.state_dir.flush()
        await log.state_dir.close()
        state_dir, loaded = await opened(tmp_path)
        journal = list(loaded.journal)
        await state_dir.close()
        return journal

    journal = asyncio.run(run())
    assert journal == written
    users = {"alice": UserQuota(transactional_ids_rate_milli=2_000)}
    state = ProducerIdQuota(Quotas(Mode.ENFORCE, ProducerIdSettings(), users=users), lambda: 7, 0)
    EventApplier("later", TOKEN).restore_journal(journal, state.restorer, NOW_MS, WALL_MS)
    asked = [
        state.decide(new_id_question("alice", "", "", hash64(TRANSACTIONAL_ID, name)), NOW_MS)
        for name in (*names, "fourth")
    ]
    assert [answer.refused for answer in asked] == [False, False, False, True]
    assert not any(answer.decisions for answer in asked[:3])
