"""AlterClientQuotas and DescribeClientQuotas on one connection: what is forwarded, held and answered."""

from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.client_quotas import (
    EXACT,
    KEY,
    EntityWords,
    alter,
    altered,
    describe,
    operations_in,
    outcomes_in,
    shown_in,
)
from tests.support.talk import Talk

METADATA, DESCRIBE = 3, 48
ALICE: EntityWords = {"user": "alice"}
OF_ALICE = frozenset({("user", "alice")})
OURS, KAFKAS = {KEY: 5.0}, {"producer_byte_rate": 7.0}
POLICY_VIOLATION, REQUEST_TIMED_OUT = 44, 7


def talk() -> Talk:
    quotas = Quotas(
        mode=Mode.ENFORCE, default=UserQuota.per_window(10), users={"bob": UserQuota.per_window(3)}
    )
    return Talk(Admission(quotas, lambda: 1, 0), Client("root", "", "10.0.0.1", 1))


def send(talk: Talk, frame: bytes) -> int:
    return talk.request(frame, 4, len(frame), 0)


def next_outcomes(talk: Talk) -> list[tuple[frozenset[tuple[str, str | None]], int]]:
    """The outcomes that the client reads next; the session is woken first."""
    assert talk.release(0) == ([], False)
    return outcomes_in(talk.out.pop(0)[4:])


def test_kafkas_own_keys_go_to_the_broker_unchanged() -> None:
    one = talk()
    assert send(one, alter([(ALICE, KAFKAS)])) is FORWARD
    assert one.to_broker == []


def test_ours_are_made_after_the_broker_has_agreed_and_then_the_client_is_answered() -> None:
    one, asked = talk(), alter([(ALICE, {**OURS, **KAFKAS})], correlation_id=5)
    assert send(one, asked) is TAKEN
    assert operations_in(bytes(one.to_broker.pop())) == [(OF_ALICE, KAFKAS)], (
        "validated first, without our keys"
    )
    assert one.alterations == []
    passes = one.broker_answers(altered([(ALICE, 0, None)], correlation_id=5))
    assert (passes, one.out) == (b"", []), "the answer to our own question is not the client's"
    assert one.alterations[0].only_check
    one.altered([None])
    assert operations_in(bytes(one.to_broker.pop())) == [(OF_ALICE, KAFKAS)]
    one.broker_answers(altered([(ALICE, 0, None)], correlation_id=5))
    assert [change.value for change in one.alterations[0].changes] == [5_000]
    assert not one.session.is_quiet
    one.altered([None])
    assert next_outcomes(one) == [(OF_ALICE, 0)]
    assert one.session.is_quiet
    assert one.context.counters.requests[49] == 1


def test_a_request_behind_it_waits_and_a_second_alteration_is_one_of_its_own() -> None:
    one = talk()
    send(one, alter([(ALICE, OURS)], correlation_id=1))
    metadata = raw.request(METADATA, 1, {"topics": []}, correlation_id=2)
    assert send(one, metadata) is TAKEN
    assert send(one, alter([({"user": "carol"}, OURS)], correlation_id=3)) is TAKEN
    one.to_broker.clear()
    one.broker_answers(altered([(ALICE, 0, None)], correlation_id=1))
    assert one.release(0) == ([], False)
    one.altered(["too much"])
    frames, _ = one.release(0)
    assert outcomes_in(one.out.pop(0)[4:]) == [(OF_ALICE, POLICY_VIOLATION)]
    assert frames[0] == metadata
    assert operations_in(bytes(frames[1])) == [(frozenset({("user", "carol")}), {})]


def test_a_change_of_unknown_outcome_is_answered_with_a_timeout() -> None:
    one = talk()
    send(one, alter([(ALICE, OURS)], correlation_id=1))
    one.broker_answers(altered([(ALICE, 0, None)], correlation_id=1))
    one.altered()
    assert next_outcomes(one) == [(OF_ALICE, REQUEST_TIMED_OUT)]


def test_what_the_broker_says_after_the_client_has_gone_starts_nothing() -> None:
    one = talk()
    send(one, alter([(ALICE, OURS)], correlation_id=1))
    one.to_broker.clear()
    one.session.drop_held()
    one.broker_answers(altered([(ALICE, 0, None)], correlation_id=1))
    assert (one.to_broker, one.alterations, one.out) == ([], [], [])


def test_the_outcome_of_a_client_that_has_gone_starts_nothing_either() -> None:
    one = talk()
    send(one, alter([(ALICE, {**OURS, **KAFKAS})], correlation_id=1))
    one.broker_answers(altered([(ALICE, 0, None)], correlation_id=1))
    one.to_broker.clear()
    one.session.drop_held()
    one.altered([None])
    assert one.to_broker == []


def test_a_description_shows_the_broker_s_quotas_and_ours() -> None:
    one = talk()
    assert send(one, describe([("user", EXACT, "bob")])) is FORWARD
    brokers = {
        **{"throttle_time_ms": 0, "error_code": 0, "error_message": None},
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "bob"}],
                "values": [{"key": "producer_byte_rate", "value": 7.0}],
            }
        ],
    }
    answer = one.broker_answers(raw.response(DESCRIBE, 1, brokers))
    assert answer is not None
    assert shown_in(answer[4:]) == {frozenset({("user", "bob")}): {"producer_byte_rate": 7.0, KEY: 3.0}}
