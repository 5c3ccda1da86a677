"""What the simulator checks is noticed where it is broken: a bound of each kind, at the moment of each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pidgate.gateway.proxy.buffers import Half
from pidgate.protocol import produce_answers
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.quota.byte_quota import ClientSensors
from pidgate.quota.decisions import FORWARD, Client, Verdict
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.retry_queue import RetryQueue
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.users import UserTable
from tests.simulator import checks
from tests.simulator.clients import hostile
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.ledger import Name, Numbers, Seen
from tests.simulator.playing import play
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Shape, Step, Weather

ALICE, BOB = ClientSetup("java-1", "java"), ClientSetup("librdkafka-2", "librdkafka", "bob")
TRANSACTIONAL = tuple(ClientSetup(f"java-{n}", "java", is_transactional=True) for n in (1, 2, 3))
ROGUES: Final[tuple[Step, ...]] = tuple((at_ms, "rogues", "alice", 2) for at_ms in range(0, 1_500, 300))
SENDS: Final[tuple[Step, ...]] = tuple(
    (at_ms, "send", name, 0, 5) for at_ms in range(0, 6_000, 100) for name in (ALICE.name, BOB.name)
)
HOSTILE: Final[tuple[Step, ...]] = (
    *((at_ms, "hostile", 12) for at_ms in range(0, 600, 200)),
    (3_000, "wait"),
)


def schedule(steps: tuple[Step, ...], quotas: QuotaSetup | None = None, **setup: Any) -> Schedule:
    setup = {"clients": (ALICE, BOB), "has_login": True, **setup}
    return Schedule(
        1, Setup(quotas=quotas or QuotaSetup(), **setup), tuple(sorted(steps, key=lambda step: step[0]))
    )


def _admits_of(user: str) -> Callable[[Any], Any]:
    def make(before: Any) -> Any:
        def decide(self: ProducerIdQuota, client: Client, *more: Any) -> Verdict:
            verdict: Verdict = FORWARD if client.user == user else before(self, client, *more)
            return verdict

        return decide

    return make


def _of_user_alone(before: Any) -> Any:
    return lambda self, live: (before(self, live)[0], None)


def _a_minute(_: Any) -> Any:
    return lambda *_: 60_000


def _always(_: Any) -> Any:
    return lambda *_: True


def _never(_: Any) -> Any:
    return lambda *_: False


def _nothing(_: Any) -> Any:
    return lambda *_: 0


def _not_asked(_: Any) -> Any:
    return lambda *_, **__: FORWARD


OBSERVED_LATE: Final = (*ROGUES, (3_000, "mode", None, False))
OBSERVED_BEFORE: Final[tuple[Step, ...]] = (
    (0, "mode", None, False),
    (300, "mode", None, True),
    *((at_ms + 1_500, *step) for at_ms, *step in ROGUES),
)
EXEMPT_BEFORE: Final[tuple[Step, ...]] = (
    (0, "exempt", "alice", True),
    (300, "exempt", "alice", False),
    *((at_ms + 1_500, *step) for at_ms, *step in ROGUES),
)

MANY: Final = tuple(ClientSetup(f"java-{n}", "java") for n in range(1, 13))
SENT_IN_PART: Final[tuple[Step, ...]] = (
    *((at_ms, "send", one.name, 0, 1) for at_ms in (0, 1_000) for one in MANY),
    *((1_002, "hold", one.name, nth, 400) for one in MANY for nth in range(3)),
    (1_100, "wait"),
)

BROKEN: Final[dict[str, tuple[Schedule, Any, str, Callable[[Any], Any], str]]] = {
    "a hostile user": (
        schedule(HOSTILE), ProducerIdQuota, "decide", _admits_of("mallory"), "user mallory brought"
    ),
    "before a change of mode": (
        schedule(OBSERVED_LATE), ProducerIdQuota, "decide", _admits_of("alice"), "user alice brought"
    ),
    "behind a change of mode": (
        schedule(OBSERVED_BEFORE), ProducerIdQuota, "decide", _admits_of("alice"), "user alice brought"
    ),
    "behind an exemption": (
        schedule(EXEMPT_BEFORE), ProducerIdQuota, "decide", _admits_of("alice"), "user alice brought"
    ),
    "all users together": (
        schedule(ROGUES, QuotaSetup(rate=20, cluster_rate=1)), UserTable, "spent_buckets", _of_user_alone,
        "all brought",
    ),
    "transactional ids": (
        schedule(
            tuple((0, "transaction", one.name, ((0, 1),), True) for one in TRANSACTIONAL),
            QuotaSetup(rate=20, transactional_ids_rate=1),
            clients=TRANSACTIONAL,
        ),
        ProducerIdQuota, "_decide_transactional_id", _not_asked, "new transactional ids",
    ),
    "bytes": (
        schedule(SENDS, QuotaSetup(rate=20, producer_byte_rate=500)), ClientSensors, "record", _nothing,
        "bytes through gateway-1",
    ),
    "bytes read": (
        schedule(
            SENDS[:60], QuotaSetup(rate=20, consumer_byte_rate=200), readers=("whole", "reconnecting")
        ),
        ClientSensors, "record", _nothing,
        "was given",
    ),
    "somebody waits too long": (
        schedule(((0, "rogues", "alice", 1), (300, "send", ALICE.name, 0, 1))),
        ProducerIdQuota, "_throttle_ms", _a_minute, "waited for",
    ),
    "memory": (
        replace(
            schedule(
                SENT_IN_PART,
                QuotaSetup(rate=200),
                buffered_total_bytes=65_536,
                weather=Weather.CHOPPED,
                clients=MANY,
            ),
            seed=3,  # enough of them are on their way when they are held
        ),
        Half, "has_room", _always, "bytes of frames",
    ),
    "entries of a user": (
        schedule(
            (*((n, "send", one.name, 0, 1) for n, one in enumerate(MANY[:6])), (400, "wait")),
            QuotaSetup(sticky_entries=3),
            clients=MANY[:6],
        ),
        StickyRefusals, "would_overflow", _never, "entries of",
    ),
    "ids in line": (
        schedule(
            tuple((n, "send", f"java-{n}", 0, 1) for n in range(1, 6)),
            QuotaSetup(queue=1),
            clients=tuple(ClientSetup(f"java-{n}", "java") for n in range(1, 6)),
        ),
        RetryQueue, "_make_room", _always, "in line",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_bound_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played, owner, method, make, words = BROKEN[name]
    assert play(played).violation == ""
    monkeypatch.setattr(owner, method, make(getattr(owner, method)))
    assert words in play(played).violation


def test_an_answer_to_acks_0_that_is_waited_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(self: RepeatedProduce, *frame: Any) -> Any:
        acks, *rest = before(self, *frame)
        return acks or -1, *rest

    before = RepeatedProduce.walk
    monkeypatch.setattr(hostile, "ACTS", {"no_answers": hostile.no_answers})
    monkeypatch.setattr(RepeatedProduce, "walk", walk)
    assert "not the next request in flight" in play(schedule(HOSTILE, QuotaSetup(rate=None))).violation


def test_what_is_acknowledged_before_it_is_written_is_noticed_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def acknowledged(buf: Any, head: Any, throttle_ms: int, text: str, _: int) -> Any:
        return before(buf, head, throttle_ms, text, ErrorCode.NONE)

    before = produce_answers.refusal
    monkeypatch.setattr("pidgate.gateway.proxy.apis.produce.refusal", acknowledged)
    steps: tuple[Step, ...] = ((0, "rogues", "alice", 1), (300, "send", ALICE.name, 0, 1), (600, "wait"))
    assert "before it was in the log" in play(schedule(steps)).violation


DEEP: Final = ClientSetup("deep", "hundreds-in-flight")


def test_brokers_alone_answer_45_to_written_batches_that_they_have_forgotten() -> None:
    """What comes behind them is appended, and written again with the others under the next epoch."""
    setup = Setup(Shape.DIRECT, brokers=1, partitions=1, weather=Weather.SLOW, clients=(DEEP,))
    cut = tuple((5_170, "hold", DEEP.name, nth, 12_000) for nth in range(3))
    steps = (
        (600, "send", DEEP.name, 0, 1),
        (5_000, "send", DEEP.name, 0, 40),
        *cut,
        (15_300, "send", DEEP.name, 0, 1),
        (18_000, "wait"),
    )
    told = play(Schedule(1, setup, steps), is_told=True)
    assert told.violation == ""
    assert "with 45" in told.story


def test_45_to_a_batch_that_is_not_written_or_not_forgotten_is_noticed() -> None:
    """The broker remembers the last five of batches 0 to 5."""

    def seen(number: int, error_code: int = 0) -> Seen:
        return Seen(0.0, 1, Name("deep", 0, number), Numbers(1_000, 0, number), 0, error_code)

    world: Any = SimpleNamespace(schedule=schedule(()), setup=Setup())
    written = [seen(number) for number in range(6)]
    checks.in_order(world, [*written, seen(0, 45)])
    for number in (1, 5, 6):
        with pytest.raises(ModelViolation, match="out of order"):
            checks.in_order(world, [*written, seen(number, 45)])
