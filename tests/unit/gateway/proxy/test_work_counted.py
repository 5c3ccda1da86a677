"""What a request counts for, of the work of one turn of the event loop: the more there is to do, the more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.protocol.work import JUDGED_PER_TURN, READ_FOR
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import MOST_IDS_PER_REQUEST, Client
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support import raw
from tests.support.client_quotas import KEY, alter, describe
from tests.support.frames import framed, produce_request, record_batch
from tests.support.talk import Talk

OWN = "__pidgate_events"
DELETE_TOPICS, INIT_PRODUCER_ID, METADATA = 20, 22, 3


def produce(*ids: int, sequence: int = 0) -> bytes:
    """A Produce with a batch of each id, in one partition after the other."""
    batches: list[tuple[int, bytes | None]] = [
        (at, record_batch(one, 0, sequence)) for at, one in enumerate(ids)
    ]
    return framed(produce_request(9, [("t", batches)]))


def describing(users: int) -> bytes:
    return describe([("user", 0, f"u{number}") for number in range(users)])


def altering(users: int) -> bytes:
    return alter([({"user": f"u{number}"}, {KEY: 5.0}) for number in range(users)])


def deleting_ours(topics: int) -> bytes:
    names = [OWN, *(f"t{number}" for number in range(topics))]
    return raw.request(DELETE_TOPICS, 1, {"topic_names": names, "timeout_ms": 1_000})


def without_records(partitions: int) -> bytes:
    return framed(produce_request(9, [("t", [(number, None) for number in range(partitions)])]))


def refused_here(partitions: int) -> bytes:
    """A Produce to a gateway topic: its work is that of the answer."""
    return framed(produce_request(9, [(OWN, [(number, None) for number in range(partitions)])]))


KINDS: dict[str, Callable[[int], bytes]] = {
    "describes quotas": describing,
    "alters quotas": altering,
    "names a gateway topic": deleting_ours,
    "produces": lambda size: produce(*[7] * size),
    "produces nothing": without_records,
    "produces to a gateway topic": refused_here,
}


def conversation(rate: int | None = None, *, until_ms: int = 0) -> Talk:
    """Alice's, muted until then. With a rate of 0 her new ids are refused, InitProducerId too."""
    ids = ProducerIdSettings(refuse_init=True) if rate == 0 else ProducerIdSettings()
    quotas = Quotas(Mode.ENFORCE, ids, default=UserQuota.per_window(rate))
    talk = Talk(
        Admission(quotas, lambda: 1, 0),
        Client("alice", "app", "10.0.0.1", 1),
        gateway_topics=GatewayTopics([OWN]),
    )
    talk.context.mute(until_ms)
    return talk


def work_of(talk: Talk, frame: bytes, before: int = 0) -> int:
    """What a frame counts that lies behind so many other bytes of a buffer."""
    judged = talk.context.account.spent
    talk.request(bytes(before) + frame, before + 4, before + len(frame), 0)
    return talk.context.account.spent - judged


@pytest.mark.parametrize("kind", KINDS)
def test_a_larger_request_counts_for_more_and_a_small_one_for_less_than_a_turn(kind: str) -> None:
    small, large = (work_of(conversation(), KINDS[kind](size)) for size in (2, 60))
    assert READ_FOR < small < large
    assert small < JUDGED_PER_TURN // 4


@pytest.mark.parametrize("build", [describing, altering, deleting_ours])
def test_what_is_read_field_by_field_counts_for_each_of_its_bytes(build: Callable[[int], bytes]) -> None:
    frame = build(2)
    assert work_of(conversation(), frame) - READ_FOR >= len(frame) - 4


@pytest.mark.parametrize("kind", KINDS)
def test_it_counts_the_same_wherever_it_lies_in_the_buffer(kind: str) -> None:
    frame = KINDS[kind](2)
    assert work_of(conversation(), frame) == work_of(conversation(), frame, before=10_000)


IDS = range(MOST_IDS_PER_REQUEST)


def known() -> Talk:
    """A conversation whose ids are known."""
    talk = conversation()
    work_of(talk, produce(*IDS))
    return talk


def refused() -> Talk:
    """One whose ids were refused. It is muted, and what follows is refused at once."""
    talk = conversation(0)
    work_of(talk, produce(*IDS))
    return talk


def test_new_ids_count_for_much_more_than_known_ones() -> None:
    """A decision takes 30 times as long as a look."""
    looks = work_of(known(), produce(*IDS))
    assert work_of(conversation(), produce(*IDS)) - looks > 20 * len(IDS)
    assert work_of(refused(), produce(*IDS, sequence=1)) - looks > 20 * len(IDS)


def test_what_waits_behind_a_mute_counts_for_looks_only() -> None:
    waits = known()
    waits.context.mute(1_000)
    assert work_of(waits, produce(*IDS)) - work_of(known(), produce(*IDS)) < 2 * len(IDS)
    assert len(waits.held) == 1


@pytest.mark.parametrize("talk", [conversation, refused])
def test_each_new_or_refused_id_counts(talk: Callable[[], Talk]) -> None:
    few, many = (work_of(talk(), produce(*ids, sequence=1)) for ids in (IDS[:2], IDS))
    assert many - few > 20 * (len(IDS) - 2)


def test_what_is_held_counts_for_each_of_its_places() -> None:
    few, many = (work_of(conversation(until_ms=1_000), without_records(places)) for places in (2, 50))
    assert many - few == 2 * 48, "it is looked into twice: for a refusal, and for what it holds"


def test_asking_for_an_id_counts_for_more_than_a_request_that_only_passes() -> None:
    body = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
    asking = raw.request(INIT_PRODUCER_ID, 3, body)
    passing = raw.request(METADATA, 1, {"topics": []})
    assert work_of(conversation(), asking) > work_of(conversation(), passing) == READ_FOR


def test_a_turn_ends_after_enough_work_and_the_rest_goes_on_in_the_next() -> None:
    talk = conversation(until_ms=1_000)
    frames = [alter([({"user": "u" * 1_000}, {"x": 1.0})], correlation_id=number) for number in range(9)]
    for frame in frames:
        talk.request(frame, 4, len(frame), 0)
    talk.wakes_ms.clear()
    first, _ = talk.release(1_000)
    assert 3 <= len(first) <= 5
    assert talk.wakes_ms == [1_000], "the session asks for its next turn"
    second, _ = talk.release(1_000)
    third, _ = talk.release(1_000)
    assert first + second + third == frames
