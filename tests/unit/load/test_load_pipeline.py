"""The good client of `pidgate load`: open loop, in order, nothing lost or doubled, whatever it is told.

Played in virtual time before a broker with Kafka's rules for sequences and a gateway that refuses.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pidgate.load.pacing import schedule
from pidgate.load.pipeline import Batch, Pipeline, Then
from pidgate.load.tally import Tally

NOT_LEADER, TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_AUTHORIZED = 6, 7, 19, 29
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER_ID = 45, 46, 59


def pipeline_of(
    kind: type[Pipeline] = Pipeline, *, most_ahead: int = 5, new_on_error: bool = False
) -> tuple[Pipeline, Tally]:
    tally = Tally()
    made = kind(
        tally,
        records_per_batch=1,
        batch_bytes=10,
        delivery_timeout_s=120.0,
        most_ahead=most_ahead,
        new_on_error=new_on_error,
    )
    return made, tally


# Open loop


def played_before_a_stall(kind: type[Pipeline]) -> Tally:
    """100 batches a second for 2 s; each is answered after 1 ms, but from 0.5 to 1.5 s there is no answer at all."""
    pipeline, tally = pipeline_of(kind)
    wire: deque[float] = deque()

    def answer_time(sent_s: float) -> float:
        return 1.5 if 0.5 <= sent_s < 1.5 else sent_s + 0.001

    def pump(now_s: float) -> None:
        while pipeline.next_batch(now_s) is not None:
            wire.append(answer_time(now_s))

    def receive_until(now_s: float) -> None:
        while wire and wire[0] <= now_s:
            arrived_s = wire.popleft()
            pipeline.record_answer(0, 0, arrived_s)
            pump(arrived_s)

    for due_s, _, _ in schedule({"steady": 100.0}, 2.0, seed=1):
        receive_until(due_s)
        pipeline.queue_batch(due_s)
        pump(due_s)
    receive_until(10.0)
    assert tally.acknowledged == tally.due == 200
    return tally


def shows_the_stall(tally: Tally) -> bool:
    """A second without answers: half of all batches were due in it, evenly, and waited for its end."""
    p50, p90 = tally.latency.percentile_ms(45), tally.latency.percentile_ms(90)
    assert p50 is not None
    assert p90 is not None
    return p50 < 2 and 750 < p90 < 850


def test_a_stall_is_charged_to_every_batch_that_was_due_in_it() -> None:
    tally = played_before_a_stall(Pipeline)
    assert shows_the_stall(tally)
    late_ms = tally.sent_late.percentile_ms(45), tally.sent_late.percentile_ms(90)
    assert late_ms[0] is not None
    assert late_ms[1] is not None
    assert late_ms[0] < 2 < 750 < late_ms[1]


def test_what_is_not_acknowledged_at_the_end_counts_with_the_time_it_has_waited() -> None:
    pipeline, tally = pipeline_of()
    for number in range(20):
        pipeline.queue_batch(number / 10)
        pipeline.next_batch(number / 10)
    pipeline.record_answer(0, 0, 0.1)
    pipeline.end_run(5.0)
    assert (tally.acknowledged, tally.unfinished, tally.latency.count) == (1, 19, 20)
    assert tally.latency.max_ms == pytest.approx(4_900, rel=0.001)
    assert pipeline.is_quiet


# A good client


@dataclass
class Broker:
    """One partition, by Kafka's rules: the next sequence is appended, the last five are known, others are refused."""

    log: list[float] = field(default_factory=list)
    expected: dict[int, int] = field(default_factory=dict)

    def append(self, producer_id: int, sequence: int, value: float) -> int:
        expected = self.expected.get(producer_id, 0)
        if sequence == expected:
            self.log.append(value)
            self.expected[producer_id] = sequence + 1
            return 0
        return 0 if expected - 5 <= sequence < expected else OUT_OF_ORDER


def play(
    seed: int, events: Callable[[random.Random], str], number: int = 60, **options: bool | int
) -> tuple[Tally, Broker, list[float]]:
    """Batches that are due every 10 ms, and whatever `events` says happens to those on the wire."""
    dice = random.Random(seed)
    pipeline, tally = pipeline_of(**options)  # type: ignore[arg-type]
    broker, wire = Broker(), deque[tuple[int, int, float]]()
    due = deque(number / 100 for number in range(number))
    wanted, now_s, producer_id, refusing = list(due), 0.0, 1, False
    for _ in range(200_000):
        while due and due[0] <= now_s:
            pipeline.queue_batch(due.popleft())
        while (batch := pipeline.next_batch(now_s)) is not None:
            wire.append((producer_id, batch.sequence, batch.due_s))
        if pipeline.needs_new_epoch:
            producer_id += 1
            pipeline.restart_sequences()
            continue
        refusing = refusing and bool(wire)
        if not wire:
            if not due and pipeline.is_quiet:
                return tally, broker, wanted
            now_s += 0.01
            continue
        now_s += 0.001
        event = NOTHING if refusing else events(dice)
        if event == "disconnect":
            for sent in list(wire)[: dice.randint(0, len(wire))]:
                broker.append(*sent)
            wire.clear()
            pipeline.record_disconnect(now_s)
            continue
        sent = wire.popleft()
        if refusing or event == "refuse":
            # A gateway lets nothing pass behind a refused batch until that one comes again.
            refusing = True
            pipeline.record_answer(NOT_ENOUGH_REPLICAS, dice.choice((0, 50, 300)), now_s)
        elif event == "refused by the broker":
            pipeline.record_answer(dice.choice((NOT_ENOUGH_REPLICAS, NOT_LEADER)), 0, now_s)
        elif event == "time out behind the append":
            broker.append(*sent)
            pipeline.record_answer(TIMED_OUT, 0, now_s)
        else:
            pipeline.record_answer(broker.append(*sent), dice.choice((0, 0, 0, 20)), now_s)
    raise AssertionError("it never ends")


NOTHING = "answer"
TROUBLE = ("refuse", "refused by the broker", "time out behind the append", "disconnect")


@pytest.mark.parametrize("seed", range(150))
def test_nothing_is_lost_doubled_or_out_of_order(seed: int) -> None:
    share = (seed % 5 + 1) / 10

    def events(dice: random.Random) -> str:
        return dice.choice(TROUBLE) if dice.random() < share else NOTHING

    tally, broker, wanted = play(seed, events)
    assert broker.log == wanted
    assert (tally.acknowledged, tally.lost, tally.possibly_doubled, tally.unfinished) == (60, 0, 0, 0)
    assert tally.requests - tally.resent == 60
    assert tally.latency.count == 60


def test_that_would_be_seen_if_later_batches_overtook_a_refused_one() -> None:
    class Overtakes(Pipeline):
        def record_answer(self, error_code: int, throttle_time_ms: int, arrived_s: float) -> Then:
            then = super().record_answer(error_code, throttle_time_ms, arrived_s)
            self._again.rotate(1)
            return then

        def next_batch(self, now_s: float) -> Batch | None:
            batch = super().next_batch(now_s)
            self._again.rotate(-1)
            return batch

    pipeline, _ = pipeline_of(Overtakes)
    broker = Broker()
    for number in range(3):
        pipeline.queue_batch(number / 100)
    sent = [pipeline.next_batch(0.1) for _ in range(3)]
    for _ in sent:
        pipeline.record_answer(NOT_ENOUGH_REPLICAS, 0, 0.2)
    again = [batch for batch in (pipeline.next_batch(1.0) for _ in range(3)) if batch is not None]
    assert [broker.append(1, batch.sequence, batch.due_s) for batch in again] != [0, 0, 0]


def test_it_waits_as_long_as_it_is_told() -> None:
    pipeline, tally = pipeline_of()
    for due_s in (0.0, 0.1):
        pipeline.queue_batch(due_s)
    assert pipeline.next_batch(0.2)
    pipeline.record_answer(NOT_ENOUGH_REPLICAS, 500, 1.0)
    assert pipeline.next_batch(1.49) is None
    first, second = pipeline.next_batch(1.5), pipeline.next_batch(1.5)
    assert first is not None
    assert second is not None
    assert (first.sequence, first.tries, second.sequence, second.tries) == (0, 2, 1, 1)
    assert (tally.refused[NOT_ENOUGH_REPLICAS], tally.refused_with_throttle, tally.throttle_s) == (1, 1, 0.5)


def test_a_throttle_of_a_good_answer_holds_it_too() -> None:
    pipeline, _ = pipeline_of()
    pipeline.queue_batch(0.0)
    pipeline.queue_batch(0.0)
    pipeline.next_batch(0.0)
    pipeline.record_answer(0, 250, 1.0)
    assert pipeline.next_batch(1.2) is None
    assert pipeline.next_batch(1.25) is not None


def test_what_cannot_be_sent_is_lost_and_the_rest_goes_on_under_a_new_id() -> None:
    pipeline, tally = pipeline_of()
    for number in range(3):
        pipeline.queue_batch(number / 10)
        pipeline.next_batch(number / 10)
    assert pipeline.record_answer(NOT_AUTHORIZED, 0, 1.0) is Then.GO_ON
    # They came behind one that is not there: no reason to give up on them.
    assert pipeline.record_answer(OUT_OF_ORDER, 0, 1.0) is Then.GO_ON
    assert pipeline.record_answer(OUT_OF_ORDER, 0, 1.0) is Then.NEW_EPOCH
    assert pipeline.next_batch(2.0) is None
    pipeline.restart_sequences()
    rest = [pipeline.next_batch(2.0), pipeline.next_batch(2.0)]
    assert [(batch.due_s, batch.sequence) for batch in rest if batch] == [(0.1, 0), (0.2, 1)]
    assert (tally.lost, tally.possibly_doubled) == (1, 0)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER_ID])
def test_a_sequence_that_the_broker_has_lost_is_begun_anew(code: int) -> None:
    pipeline, tally = pipeline_of()
    pipeline.queue_batch(0.0)
    pipeline.next_batch(0.0)
    assert pipeline.record_answer(code, 0, 1.0) is Then.NEW_EPOCH
    assert tally.lost == 1


def test_a_batch_is_given_up_after_its_delivery_time() -> None:
    pipeline, tally = pipeline_of()
    pipeline.queue_batch(0.0)
    pipeline.queue_batch(100.0)
    pipeline.next_batch(0.0)
    pipeline.record_answer(NOT_ENOUGH_REPLICAS, 0, 119.0)
    assert pipeline.next_batch(119.0) is None
    assert pipeline.next_batch(121.0) is None
    assert (tally.lost, pipeline.needs_new_epoch) == (1, True)
    pipeline.restart_sequences()
    batch = pipeline.next_batch(121.0)
    assert batch is not None
    assert (batch.due_s, batch.sequence) == (100.0, 0)


# A new producer after each error


@pytest.mark.parametrize("seed", range(30))
def test_a_new_producer_on_each_refusal_delivers_everything_once(seed: int) -> None:
    def events(dice: random.Random) -> str:
        return dice.choice(("refuse", NOTHING, NOTHING))

    tally, broker, wanted = play(seed, events, most_ahead=1, new_on_error=True)
    assert broker.log == wanted
    assert (tally.acknowledged, tally.lost, tally.possibly_doubled) == (60, 0, 0)
    assert len(broker.expected) > 1


def test_a_new_producer_may_double_what_had_no_answer_and_says_so() -> None:
    pipeline, tally = pipeline_of(most_ahead=1, new_on_error=True)
    pipeline.queue_batch(0.0)
    pipeline.next_batch(0.0)
    assert pipeline.record_disconnect(1.0) is Then.NEW_EPOCH
    pipeline.restart_sequences()
    assert tally.possibly_doubled == 1
