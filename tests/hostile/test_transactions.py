"""What is let pass in transactions, where they are only observed, is no way around the quota."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.transaction_parts import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    TXN_OFFSET_COMMIT,
)
from tests.hostile.attack import HOSTILE_USER, Attack, Case, Delivery, Place, Target, cases
from tests.hostile.site import HONEST_USER, Site, carry_out, running_site
from tests.support import raw
from tests.support.frames import ONE_RECORD, Topics, record_batch
from tools.sandbox.kafka import Cluster

MANY = 20


def _known_by_a_transaction_nobody_began(target: Target) -> Iterator[bytes]:
    """Use each id first with a transactional id, then without, in the same form of request and in a plain one."""
    ids = [target.new_id() for _ in range(MANY)]
    for producer_id in ids:
        yield _produce(target, producer_id, transactional_id="nobody", transactional=True)
    for producer_id in ids:
        yield _produce(target, producer_id, transactional_id="nobody")
        yield _produce(target, producer_id)


def _produce(
    target: Target, producer_id: int, *, transactional_id: str | None = None, transactional: bool = False
) -> bytes:
    batch = record_batch(producer_id, records=ONE_RECORD, transactional=transactional)
    data: Topics = [(target.named(target.version), [(0, batch)])]
    return target.produce_of(data, version=target.version, transactional_id=transactional_id)


ATTACKS = [
    Attack(
        name="ids made known by a transaction that nobody began",
        frames=_known_by_a_transaction_nobody_began,
        versions=(9, 3, 8, 12, 13),
    ),
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)


INIT_PRODUCER_ID = 22
RATE = 2
LIMITED = {
    "users": {HONEST_USER: {"producer_ids_rate": 1_000_000}, HOSTILE_USER: {"transactional_ids_rate": RATE}},
    "producer_ids": {"max_throttle": "100ms", "grace": "0s"},
}


def _init(name: str) -> bytes:
    body = {
        "transactional_id": name,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return raw.request(INIT_PRODUCER_ID, 4, body)


@pytest.mark.kafka
def test_a_transactional_id_made_up_at_each_start_is_refused(sasl_cluster: Cluster) -> None:
    frames = [_init(f"start-{number}") for number in range(MANY)]
    with running_site(sasl_cluster, Place(), quotas=LIMITED) as site:
        refused = 0
        with site.under_attack(log_lines=6):
            for first in range(0, MANY, 5):
                with site.connect(HOSTILE_USER) as attacker:  # a new connection sheds nothing
                    outcome = attacker.attack(frames[first : first + 5], Delivery.PIPELINED)
                refused += sum(map(_is_refused, outcome.answers))
    assert refused == MANY - (RATE + 1)


def _is_refused(answer: bytes) -> bool:
    """Return whether the gateway refused it: it names a throttle, which the broker has no reason for."""
    found = raw.decoded(INIT_PRODUCER_ID, 4, answer)
    error_code, throttle_time_ms = found["error_code"], found["throttle_time_ms"]
    return bool(error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and throttle_time_ms > 0)


ENFORCED = {
    "users": {HONEST_USER: {"producer_ids_rate": 1_000_000}, HOSTILE_USER: {"producer_ids_rate": RATE}},
    "producer_ids": {"transactional": "enforce", "max_throttle": "100ms", "grace": "0s"},
}
VERSIONS = {ADD_PARTITIONS_TO_TXN: 3, ADD_OFFSETS_TO_TXN: 3, TXN_OFFSET_COMMIT: 3}


def _part(api_key: int, producer_id: int) -> bytes:
    of: dict[str, Any] = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": 0}
    if api_key == ADD_PARTITIONS_TO_TXN:
        of = {f"v3_and_below_{name}": value for name, value in of.items()}
        of["v3_and_below_topics"] = [{"name": "orders", "partitions": [0]}]
    else:
        of["group_id"] = "readers"
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        of["topics"] = [{"name": "orders", "partitions": [offset]}]
    return raw.request(api_key, VERSIONS[api_key], of)


@pytest.mark.kafka
def test_a_transaction_without_a_record_makes_no_state_for_free(sasl_cluster: Cluster) -> None:
    with running_site(sasl_cluster, Place(), quotas=ENFORCED) as site:
        with site.under_attack(log_lines=6):
            for first in range(0, MANY, 5):
                keys = [list(VERSIONS)[number % 3] for number in range(5)]
                frames = [_part(key, 900_000 + first + at) for at, key in enumerate(keys)]
                with site.connect(HOSTILE_USER) as attacker:
                    assert len(attacker.attack(frames, Delivery.PIPELINED).answers) == len(frames)
        expected = MANY - (RATE + 1)
        assert site.counted(expected, "pidgate_requests_refused_total", reason="first_seen") == expected
