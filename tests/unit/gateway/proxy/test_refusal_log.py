"""One line a second and user, and nothing of what was left out is lost."""

import pytest
import structlog

from pidgate.gateway.logs import QUIET_MS, Event
from pidgate.gateway.proxy.refusal_log import CloseLog, GatewayTopicLog, RefusalLog
from pidgate.quota.decisions import Reason, Refuse


def refuse(user: str, producer_id: int, reason: Reason = Reason.FIRST_SEEN) -> Refuse:
    return Refuse(9_000, reason, producer_id, True, user, 100_000, 3_600_000)


def describe() -> dict[str, object]:
    return {"client_id": "app", "address": "10.0.0.1"}


@pytest.fixture(name="lines")
def _lines() -> object:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_a_storm_of_refusals_is_one_line_a_second(lines: list[dict[str, object]]) -> None:
    refusal_log = RefusalLog()
    for producer_id in range(500):
        refusal_log.note(refuse("mallory", producer_id), describe, 10_000)
    refusal_log.note(refuse("mallory", 500), describe, 10_000 + QUIET_MS)
    assert [(line["event"], line["producer_id"], line["suppressed_count"]) for line in lines] == [
        (Event.PRODUCER_ID_REFUSED, 0, 0),
        (Event.PRODUCER_ID_REFUSED, 500, 499),
    ]


def test_another_user_is_not_silenced(lines: list[dict[str, object]]) -> None:
    refusal_log = RefusalLog()
    refusal_log.note(refuse("mallory", 1), describe, 0)
    refusal_log.note(refuse("alice", 2), describe, 0)
    assert [line["producer_id"] for line in lines] == [1, 2]


def test_consequences_of_a_refusal_have_no_line_of_their_own(lines: list[dict[str, object]]) -> None:
    refusal_log = RefusalLog()
    for reason in (Reason.STICKY, Reason.DEADLINE):
        refusal_log.note(refuse("mallory", 1, reason), describe, 0)
    assert not lines
    refusal_log.note(refuse("mallory", 1), describe, 0)
    refusal_log.note(refuse("mallory", 1, Reason.ESTABLISHED), describe, 0)
    assert [(line["event"], line["log_level"], line["suppressed_count"]) for line in lines] == [
        (Event.PRODUCER_ID_REFUSED, "warning", 1),
        (Event.BATCH_KEPT_IN_ORDER, "info", 1),
    ]


def test_requests_for_gateway_topics_are_one_line_a_second(lines: list[dict[str, object]]) -> None:
    gateway_topic_log = GatewayTopicLog()
    for _ in range(10):
        gateway_topic_log.note(3, describe, 0)
    gateway_topic_log.note(20, describe, QUIET_MS)
    assert [(line["event"], line["api"], line["suppressed_count"]) for line in lines] == [
        (Event.GATEWAY_TOPIC_REFUSED, "Metadata", 0),
        (Event.GATEWAY_TOPIC_REFUSED, "DeleteTopics", 9),
    ]


def test_closed_connections_are_one_line_a_second_and_cause(lines: list[dict[str, object]]) -> None:
    close_log = CloseLog()
    for _ in range(500):
        close_log.note("quota", "sticky_table_full", describe, 10_000)
    close_log.note("protocol", "not Kafka's protocol", describe, 10_000)
    close_log.note("quota", "sticky_table_full", describe, 10_000 + QUIET_MS)
    assert [(line["cause"], line["suppressed_count"]) for line in lines] == [
        ("quota", 0),
        ("protocol", 0),
        ("quota", 499),
    ]


def test_no_number_of_names_makes_it_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.gateway.logs.KEYS_KEPT", 10)
    refusal_log = RefusalLog()
    for reason in (Reason.STICKY, Reason.FIRST_SEEN):
        for number in range(100):
            refusal_log.note(refuse(f"user-{number}", number, reason), describe, 0)
    kept = refusal_log._lines
    assert max(len(kept._left_out), len(kept._quiet_until_ms)) <= 10
