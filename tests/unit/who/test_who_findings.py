"""Each kind of finding out of a stream of events, and near misses that must not be taken for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC

import pytest

from pidgate.events.patterns import PATTERN_WORDS, Pattern
from pidgate.who.finding import Finding
from pidgate.who.findings import findings
from pidgate.who.painting import user_pictures
from pidgate.who.picture import UserPicture, Window
from pidgate.who.tally import Tally
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

END_MS = START_MS + HOUR_MS
WINDOW = Window(START_MS, END_MS, START_MS)
MINUTE_MS = 60_000


def pictures(*streams: Stream) -> list[UserPicture]:
    tally = Tally()
    for stream in streams:
        for event in stream.events():
            tally.add(event)
    return list(user_pictures(tally, WINDOW, None))


def found(stream: Stream, user: str = "alice") -> list[Finding]:
    picture = next(picture for picture in pictures(stream) if picture.user == user)
    return findings(picture, WINDOW, UTC)


def kinds(stream: Stream, user: str = "alice") -> list[Pattern]:
    return [finding.kind for finding in found(stream, user)]


# Restart loop


def restart_loop(interval_ms: int = 4_000, starts: int = 100, per_start: int = 1) -> Stream:
    stream, chance = Stream(), random.Random(7)
    for start in range(starts):
        at_ms = START_MS + start * interval_ms + chance.randrange(interval_ms // 10)
        for number in range(per_start):
            client = Client(client_id="etl" if per_start == 1 else f"producer-{number + 1}")
            stream.producer(client, at_ms + 50 * number, life_ms=interval_ms // 3, requests=5)
    return stream


def test_a_restart_loop_is_told_with_its_interval_place_and_software() -> None:
    [finding] = found(restart_loop())

    assert finding.kind is Pattern.RESTART_LOOP
    assert finding.text == (
        "client etl at 10.0.3.7 (Java 3.7.0) is in a restart loop: 100 starts, one after the other, every 4 s, 100 "
        "new ids, each in use for about 1.4 s"
    )
    assert finding.ids == 100
    assert finding.addresses == ("10.0.3.7",)
    assert finding.evidence["starts"] == 100
    assert 3_900 <= int(finding.evidence["interval_ms"]) <= 4_100


def test_a_restart_loop_may_open_several_producers_at_each_start() -> None:
    [finding] = found(restart_loop(interval_ms=30_000, per_start=3))

    assert finding.kind is Pattern.RESTART_LOOP
    assert "300 new ids, 3 at each start" in finding.text
    assert finding.evidence["ids_per_start"] == 3


def test_a_restart_loop_that_sends_one_batch_each_time_is_a_restart_loop() -> None:
    stream = Stream()
    for start in range(60):
        stream.producer(Client(), START_MS + start * 10_000, life_ms=0, requests=1)

    assert kinds(stream) == [Pattern.RESTART_LOOP]


def test_a_restart_loop_with_growing_pauses() -> None:
    stream, at_ms = Stream(), START_MS
    for pause_s in (10, 20, 40, 80, 160, 300, 300, 300):
        stream.producer(Client(), at_ms, life_ms=2_000, requests=3)
        at_ms += pause_s * 1_000

    [finding] = found(stream)

    assert finding.kind is Pattern.RESTART_LOOP
    assert (
        "at 10.0.3.7 (Java 3.7.0) is in a restart loop: 8 starts, one after the other, every 5 min, with growing pauses"
        in finding.text
    )


def test_restart_loops_of_several_places_are_one_finding() -> None:
    stream = Stream()
    for pod in range(4):
        for start in range(50):
            client = Client(address=f"10.0.3.{pod}")
            stream.producer(client, START_MS + start * 40_000 + pod * 977, life_ms=9_000, requests=4)

    [finding] = found(stream)

    assert finding.kind is Pattern.RESTART_LOOP
    assert "at 10.0.3.0, 10.0.3.1 and 2 more" in finding.text
    assert finding.ids == 200


def test_a_loop_that_comes_up_at_a_new_address_each_time() -> None:
    stream = Stream()
    for start in range(40):
        client = Client(address=f"10.1.0.{start}", client_id=f"etl-7f9c5d-x{start}q2k")
        stream.producer(client, START_MS + start * 60_000, life_ms=9_000, requests=4)

    [finding] = found(stream)

    assert finding.kind is Pattern.RESTART_LOOP
    assert (
        "clients etl-*-* at 40 addresses in turn (Java 3.7.0) are in a restart loop: 40 starts, "
        in finding.text
    )
    assert "every 1 min, 40 new ids" in finding.text


def test_refused_starts_are_a_loop_too() -> None:
    stream = Stream()
    for start in range(50):
        at_ms = START_MS + start * 4_000
        producer_id = stream.allocate(Client(), at_ms)
        for retry in range(3):
            stream.decide(Client(), at_ms + 100 * retry, producer_id, "refuse", "first_seen")

    [picture] = pictures(stream)

    assert (picture.new_ids, picture.refused_ids, picture.never_admitted_ids) == (50, 50, 50)
    assert [finding.kind for finding in findings(picture, WINDOW)] == [Pattern.RESTART_LOOP]


def test_near_miss_starts_at_chance_are_no_loop() -> None:
    stream, chance, at_ms = Stream(), random.Random(3), float(START_MS)
    for _start in range(100):
        stream.producer(Client(), int(at_ms), life_ms=1_000, requests=5)
        at_ms += 2_000 + chance.expovariate(1 / 20_000)

    assert kinds(stream) == [Pattern.PRODUCER_PER_TASK]


def test_near_miss_a_beat_of_producers_that_stay_is_no_loop() -> None:
    stream = Stream()
    for start in range(30):
        stream.producer(Client(), START_MS + start * 60_000)

    assert Pattern.RESTART_LOOP not in kinds(stream)


def test_near_miss_a_beat_of_ids_on_one_connection_is_no_loop() -> None:
    stream = Stream()
    pool = stream.connection()
    for start in range(60):
        stream.producer(Client(), START_MS + start * 10_000, life_ms=0, requests=1, connection=pool)

    assert kinds(stream) == [Pattern.PRODUCER_PER_BATCH]


def test_near_miss_four_starts_are_no_loop() -> None:
    assert kinds(restart_loop(starts=4)) == [Pattern.UNKNOWN]


def test_near_miss_faster_than_any_process_starts_is_no_loop() -> None:
    assert Pattern.RESTART_LOOP not in kinds(restart_loop(interval_ms=750))


# A producer per batch


def id_per_batch(ids: int = 400, requests: Callable[[int], int] = lambda number: 1) -> Stream:
    stream, chance, at_ms = Stream(), random.Random(5), START_MS
    pool = [stream.connection() for _ in range(4)]
    for number in range(ids):
        stream.producer(Client(), at_ms, life_ms=0, requests=requests(number), connection=chance.choice(pool))
        at_ms += chance.randrange(200, 1_500)
    return stream


def test_a_producer_per_batch_comes_with_requests_per_id_and_connections() -> None:
    [finding] = found(id_per_batch())

    assert finding.kind is Pattern.PRODUCER_PER_BATCH
    assert finding.text.startswith(
        "client etl at 10.0.3.7 (Java 3.7.0) opens a producer per batch: 400 new ids, 1.0 requests and 1.0 records "
        "per id, "
    )
    assert finding.text.endswith("ids per connection: one pool of connections")
    assert finding.evidence == {"requests_per_id": 1.0, "records_per_id": 1.0}


def test_client_ids_that_are_counted_up_tell_one_process_from_a_loop() -> None:
    # As regular as any loop, but its client ids go up: the process did not start anew.
    stream = Stream()
    for number in range(60):
        client = Client(client_id=f"producer-{number + 1}")
        stream.producer(client, START_MS + number * 10_000, life_ms=0, requests=1)

    [finding] = found(stream)

    assert finding.kind is Pattern.PRODUCER_PER_BATCH
    assert "clients producer-* at 10.0.3.7 (Java 3.7.0) open a producer per batch" in finding.text
    assert finding.text.endswith(", a connection for each")


def test_a_loop_with_its_process_id_in_the_client_id_is_a_loop() -> None:
    stream, chance = Stream(), random.Random(11)
    for number in range(60):
        client = Client(client_id=f"etl-{chance.randrange(100, 30_000)}")
        stream.producer(client, START_MS + number * 10_000, life_ms=0, requests=1)

    assert kinds(stream) == [Pattern.RESTART_LOOP]


def test_near_miss_every_third_id_sends_three_batches() -> None:
    stream = id_per_batch(requests=lambda number: 3 if number % 3 == 0 else 1)

    assert kinds(stream) == [Pattern.PRODUCER_PER_TASK]


def test_near_miss_nineteen_ids() -> None:
    assert kinds(id_per_batch(ids=19)) == [Pattern.UNKNOWN]


def test_one_batch_each_from_ever_new_addresses() -> None:
    stream, chance, at_ms = Stream(), random.Random(2), START_MS
    for number in range(50):
        client = Client(address=f"10.2.{number // 200}.{number % 200}", client_id="lambda")
        stream.producer(client, at_ms, life_ms=0, requests=1)
        at_ms += int(chance.expovariate(1 / 30_000))

    [finding] = found(stream)

    assert finding.kind is Pattern.PRODUCER_PER_BATCH
    assert (
        "client lambda at 50 addresses in turn (Java 3.7.0) opens a producer per batch: 50 new ids, "
        in finding.text
    )


# One producer per task, one per thread


def tasks(life_ms: int = 2_000) -> Stream:
    stream, chance, at_ms = Stream(), random.Random(1), START_MS
    for number in range(300):
        client = Client(client_id=f"producer-{number + 1}")
        stream.producer(client, at_ms, life_ms=life_ms, requests=5)
        at_ms += chance.randrange(10, 1_200)
    return stream


def test_one_producer_per_request_or_job() -> None:
    [finding] = found(tasks())

    assert finding.kind is Pattern.PRODUCER_PER_TASK
    assert finding.text.startswith(
        "clients producer-* at 10.0.3.7 (Java 3.7.0) open a producer per request or job: 300 new ids, each in use "
        "for about 2 s and 5 requests, up to "
    )


def threads(number: int = 64) -> Stream:
    stream = Stream()
    for thread in range(number):
        stream.producer(Client(client_id=f"producer-{thread + 1}"), START_MS + 300 * thread)
    return stream


def test_one_producer_per_thread() -> None:
    [finding] = found(threads())

    assert finding.kind is Pattern.PRODUCER_PER_THREAD
    assert finding.text == (
        "clients producer-* at 10.0.3.7 (Java 3.7.0) open a producer per thread: 64 ids in use at the same time (or "
        "as many instances behind one address)"
    )


def test_near_miss_nine_producers_of_one_process_are_steady() -> None:
    assert kinds(threads(9)) == [Pattern.STEADY]


def test_near_miss_many_long_lived_ones_that_follow_each_other_are_not_threads() -> None:
    stream = Stream()
    for number in range(12):
        stream.producer(Client(), START_MS + number * 5 * MINUTE_MS, life_ms=4 * MINUTE_MS, requests=900)

    assert Pattern.PRODUCER_PER_THREAD not in kinds(stream)


# Deployments and steady producers


def deployment(addresses: int = 40, life_ms: int | None = None, apart_ms: int = 2_000) -> Stream:
    stream = Stream()
    for pod in range(addresses):
        client = Client(address=f"10.4.0.{pod}", client_id=f"orders-6d5f9c-{pod}x7k")
        stream.producer(client, START_MS + 120_000 + pod * apart_ms, life_ms=life_ms, requests=3)
    return stream


def test_a_deployment_is_told_with_its_time_and_is_followed_by_quiet() -> None:
    [finding, steady] = found(deployment())

    assert finding.kind is Pattern.ROLLING_DEPLOYMENT
    assert finding.text == (
        "clients orders-*-* at 40 addresses (Java 3.7.0) were deployed: 40 new ids at 13:42, then quiet"
    )
    assert steady.text.endswith("are steady: 40 long-lived producers")


def test_a_rolling_deployment_with_one_instance_at_a_time() -> None:
    assert kinds(deployment(apart_ms=30_000)) == [Pattern.ROLLING_DEPLOYMENT, Pattern.STEADY]


def test_a_deployment_that_has_just_happened_may_still_go_on() -> None:
    stream = Stream()
    for pod in range(12):
        stream.producer(Client(address=f"10.4.0.{pod}"), END_MS - 90_000 + pod * 5_000)

    [finding] = found(stream)

    assert finding.text.endswith(
        "at 12 addresses (Java 3.7.0) was deployed: 12 new ids at 14:38, maybe still going on"
    )


def test_near_miss_what_ends_at_once_was_not_deployed() -> None:
    assert Pattern.ROLLING_DEPLOYMENT not in kinds(deployment(life_ms=1_000))


def test_near_miss_four_addresses_are_no_deployment() -> None:
    stream = Stream()
    for number in range(12):
        stream.producer(Client(address=f"10.4.0.{number % 4}"), START_MS + number * 900)

    assert Pattern.ROLLING_DEPLOYMENT not in kinds(stream)


def test_near_miss_starts_all_through_the_hour_are_no_deployment() -> None:
    assert Pattern.ROLLING_DEPLOYMENT not in kinds(deployment(apart_ms=85_000))


def test_steady_producers_that_were_there_before() -> None:
    stream = Stream()
    for number in range(12):
        client = Client(address=f"10.0.0.{number}", client_id="billing")
        stream.decide(client, START_MS + number * MINUTE_MS, 70 + 1_000 * number, reason="refresh")

    [picture] = pictures(stream)
    [finding] = findings(picture, WINDOW)

    assert (picture.new_ids, picture.returned_ids) == (0, 12)
    assert finding.text == (
        "client billing at 10.0.0.0, 10.0.0.1 and 10 more (Java 3.7.0) is steady: 12 long-lived producers"
    )


def test_near_miss_a_steady_user_with_many_short_lived_ids_beside_is_not_steady() -> None:
    stream = Stream()
    for number in range(12):
        stream.decide(Client(address=f"10.0.0.{number}"), START_MS, 70 + number, reason="refresh")
    for number in range(6):
        stream.producer(Client(), START_MS + number * number * MINUTE_MS, life_ms=30_000, requests=9)

    assert kinds(stream) == [Pattern.UNKNOWN]


# Transactions and ids without use


def test_transactional_producers_with_epoch_bumps() -> None:
    stream = Stream()
    for number in range(30):
        client = Client(address=f"10.0.5.{number % 3}", client_id="ledger")
        at_ms = START_MS + number * 3_000
        producer_id = stream.allocate(client, at_ms, transactional=True)
        stream.decide(client, at_ms + 20, producer_id, transactional=True)
        if number < 28:
            stream.make_bump(client, at_ms + 60_000, producer_id)

    texts = [finding.text for finding in found(stream)]

    assert any(text.endswith(" uses transactions: 30 ids, epoch bumps on 28") for text in texts)


def test_a_new_transactional_id_at_each_start() -> None:
    stream, chance, at_ms = Stream(), random.Random(9), START_MS
    for number in range(40):
        client = Client(address=f"10.0.5.{number}")
        producer_id = stream.allocate(client, at_ms, transactional=True)
        stream.decide(client, at_ms + 20, producer_id, transactional=True)
        stream.use(client, producer_id, at_ms + 20, at_ms + 900, 3)
        at_ms += int(chance.expovariate(1 / 40_000))

    [finding] = found(stream)

    assert finding.kind is Pattern.RANDOM_TRANSACTIONAL_IDS
    assert "makes up a transactional id at each start: 40 new ids, 0 of them taken up again" in finding.text


def test_near_miss_a_few_transactional_ids_among_many_say_nothing() -> None:
    stream = threads(9)
    producer_id = stream.allocate(Client(), START_MS, transactional=True)
    stream.decide(Client(), START_MS + 5, producer_id, transactional=True)

    assert Pattern.TRANSACTIONAL not in kinds(stream)


def unused(handed_out: int, used: int, at_ms: int = START_MS) -> Stream:
    stream, chance = Stream(), random.Random(4)
    client = Client(software=("librdkafka", "1.9.2"))
    for number in range(handed_out):
        at_ms += int(chance.expovariate(1 / 5_000))
        producer_id = stream.allocate(client, at_ms)
        if number < used:
            stream.decide(client, at_ms + 20, producer_id)
            stream.use(client, producer_id, at_ms + 20, at_ms + 4_000, 6)
    stream.alive(at_ms + 2 * MINUTE_MS)
    return stream


def test_ids_without_use() -> None:
    [finding] = found(unused(100, 10))

    assert finding.kind is Pattern.UNUSED_IDS
    assert finding.text == (
        "client etl at 10.0.3.7 (librdkafka 1.9.2) opens producers that never send: 90 of 100 ids handed out "
        "(InitProducerId) were never produced with"
    )


@pytest.mark.parametrize(("handed_out", "used"), [(12, 3), (100, 76)])
def test_near_miss_few_ids_without_use(handed_out: int, used: int) -> None:
    assert Pattern.UNUSED_IDS not in kinds(unused(handed_out, used))


def test_near_miss_ids_handed_out_a_moment_ago_are_not_without_use_yet() -> None:
    stream = Stream()
    for number in range(40):
        stream.allocate(Client(), END_MS - 50_000 + number * 1_000)

    assert Pattern.UNUSED_IDS not in kinds(stream)


# All of them


def test_users_are_told_apart() -> None:
    stream = restart_loop()
    for number in range(9):
        stream.producer(Client(user="bob", client_id=f"producer-{number}"), START_MS + 300 * number)

    assert kinds(stream, "alice") == [Pattern.RESTART_LOOP]
    assert kinds(stream, "bob") == [Pattern.STEADY]


def test_a_loop_beside_healthy_producers_of_the_same_user_is_found_and_nothing_calm_is_said() -> None:
    stream = restart_loop()
    for pod in range(8):
        stream.producer(Client(address=f"10.9.0.{pod}"), START_MS + pod * 100)

    assert kinds(stream) == [Pattern.RESTART_LOOP]


def test_every_pattern_has_a_sentence_and_a_remedy() -> None:
    assert set(PATTERN_WORDS) == set(Pattern)
    assert all(words.sentence and words.remedy for words in PATTERN_WORDS.values())
