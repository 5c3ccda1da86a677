"""Answers of other gateways are read with care, and a gateway without a topic answers for itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pidgate.gateway.present.fleet_answers import MOST_ROWS, _digest, _read
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.loopback import ScriptedBroker, gateway_before, run

ROW: dict[str, Any] = {
    "user": "alice",
    "client_id": "etl",
    "address": "10.0.3.7",
    "library": "librdkafka 2.6.0",
    "why": "user_rate",
    "since_wall_ms": 5,
    "until_wall_ms": None,
    "gives_up_wall_ms": 9,
    "producer_id": 7,
    "place": 0,
    "attempts": 1,
    "node_id": 1,
}
ANSWER: dict[str, Any] = {
    "version": "1",
    "is_ready": True,
    "not_ready": "",
    "connections": 3,
    "waiting": 1,
    "mode": "enforce",
    "changes": 0,
    "quotas": "00",
    "waits": [ROW],
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**ANSWER, "waits": None}),
        json.dumps({**ANSWER, "waits": [{**ROW, "why": "made up"}]}),
        json.dumps({**ANSWER, "waits": [{**ROW, "since_wall_ms": "soon"}]}),
        json.dumps({**ANSWER, "waits": [{**ROW, "user": None}]}),
        json.dumps({key: value for key, value in ANSWER.items() if key != "quotas"}),
    ],
)
def test_what_is_no_answer_of_this_version_is_none(text: str) -> None:
    assert _read(text) is None


def test_an_answer_is_bounded() -> None:
    found = _read(json.dumps({**ANSWER, "waits": [ROW] * 1_000}))
    assert found is not None
    assert found["waits"] == [ROW] * MOST_ROWS


def test_quotas_are_the_same_in_whatever_order_users_are() -> None:
    alice, bob = UserQuota.per_window(5), UserQuota.per_window(7)
    one = Quotas(mode=Mode.ENFORCE, users={"alice": alice, "bob": bob})
    same = Quotas(mode=Mode.ENFORCE, users={"bob": bob, "alice": alice})
    other = Quotas(mode=Mode.ENFORCE, users={"bob": alice, "alice": bob})
    first, second, third = (asyncio.run(_digest(quotas)) for quotas in (one, same, other))
    assert first == second != third


def test_a_gateway_without_a_topic_answers_for_itself() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address) as gateway:
            told = await gateway.gateway.ask_fleet()
            (row,) = told["gateways"]
            assert (row["is_own"], row["answered"], row["same_quotas"]) == (True, True, True)
            assert (told["has_topic"], told["waits"]["total"]) == (False, 0)

    run(scenario())
