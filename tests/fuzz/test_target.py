"""Each crash condition notices what it is there for."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pidgate.protocol.headers import RequestHead
from pidgate.protocol.produce import walk
from pidgate.protocol.work import MEMORY_FACTOR
from tests.fuzz import kio_oracle, requests
from tests.fuzz.target import CPU_S, MEMORY_BYTES, Finding, Target
from tests.fuzz.targets import TARGETS


class No(Exception):
    """A refusal."""


def target(decode: Callable[[bytes], object]) -> Target:
    return Target("mutant", decode, lambda data, found: None, lambda: [b""], (No,))


def hold(decode: Callable[[bytes], object], data: bytes = bytes(1000)) -> None:
    target(decode).hold(data, measure_memory=True)


def refuse(_data: bytes) -> object:
    raise No


def stumble(_data: bytes) -> object:
    raise IndexError


def dawdle(_data: bytes) -> object:
    until_s = time.thread_time() + CPU_S * 1.2
    while time.thread_time() < until_s:
        pass
    return 1


def test_a_refusal_is_no_finding() -> None:
    hold(refuse)


def test_any_other_error_is() -> None:
    with pytest.raises(IndexError):
        hold(stumble)


def test_a_slow_decoder_is_noticed() -> None:
    with pytest.raises(Finding, match="ms"):
        hold(dawdle)


def test_memory_beyond_the_bytes_received_is_noticed() -> None:
    hold(lambda data: bytes(MEMORY_BYTES))
    with pytest.raises(Finding, match="memory"):
        hold(lambda data: bytes(MEMORY_BYTES + (MEMORY_FACTOR + 1) * len(data)))


@pytest.mark.kafka
def test_a_decoder_that_reads_another_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:

    def wrong(buf: bytes, head: RequestHead) -> object:
        acks, transactional, batches = walk(buf, head)
        return acks, transactional, [(one[0], one[1] + 1, *one[2:]) for one in batches]

    monkeypatch.setattr(requests, "walk", wrong)
    frame = next(iter(TARGETS["produce_requests"].seeds()))
    with pytest.raises(Finding, match="another way"):
        TARGETS["produce_requests"].hold(frame, measure_memory=False)


@pytest.mark.kafka
def test_a_topic_that_is_not_seen_is_noticed() -> None:
    blind = replace(TARGETS["own_topics"], decode=lambda data: False)
    found = 0
    for data in blind.seeds():
        try:
            blind.hold(data, measure_memory=False)
        except Finding:
            found += 1
    assert found > 100


def test_an_answer_that_ends_the_oracle_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 2**28 elements that are not there, where our own decoder has no need to look."""
    monkeypatch.setattr(kio_oracle, "kio_may_abort", True)
    frame = bytes.fromhex("0087008000000000000005 00f9ffff800000ffffffff7f015d3300")
    data = kio_oracle.SELECTOR.pack(48, 1) + frame
    assert TARGETS["small_answers"].decoded(data) is not None
    TARGETS["small_answers"].hold(data, measure_memory=False)
    valid = next(iter(TARGETS["small_answers"].seeds()))
    api_key, version = kio_oracle.SELECTOR.unpack_from(valid)
    assert kio_oracle._survives(api_key, version, valid[kio_oracle.SELECTOR.size :])
