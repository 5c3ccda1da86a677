"""Each kind of finding out of a stream of events, and near misses that must not be taken for it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pidgate.events.definitions import LifecycleEvent
from pidgate.findings.patterns import PATTERN_WORDS, Pattern
from pidgate.who.findings import Finding, findings
from pidgate.who.painting import shared_ids, user_pictures
from pidgate.who.picture import SharedId, UserPicture, Window
from pidgate.who.tally import Tally
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

END_MS = START_MS + HOUR_MS
WINDOW = Window(START_MS, END_MS, START_MS)
MINUTE_MS = 60_000
STATE = {"mode": "observe", "window_ms": HOUR_MS, "remember_ms": 24 * HOUR_MS}


def pictures(*streams: Stream) -> list[UserPicture]:
    tally = Tally()
    for stream in streams:
        for event in stream.events():
            tally.add(event)
    return list(user_pictures(tally, WINDOW, None))


def found(stream: Stream, user: str = "alice") -> list[Finding]:
    picture = next(picture for picture in pictures(stream) if picture.user == user)
    return findings(picture, WINDOW)


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
        "new ids in 6.6 min, each in use for about 1.3 s"
    )
    assert finding.ids == 100
    assert finding.addresses == ("10.0.3.7",)
    assert finding.evidence["bursts"] == 100
    assert 3_900 <= int(finding.evidence["interval_ms"]) <= 4_100


def test_a_restart_loop_may_open_several_producers_at_each_start() -> None:
    [finding] = found(restart_loop(interval_ms=30_000, per_start=3))

    assert finding.kind is Pattern.RESTART_LOOP
    assert "300 new ids in 50 min, 3 at each start" in finding.text


def test_near_miss_one_batch_within_a_moment_is_no_process() -> None:
    stream = Stream()
    for start in range(60):
        stream.producer(Client(), START_MS + start * 11_000, life_ms=0, requests=1)

    assert kinds(stream) == [Pattern.PRODUCER_PER_BATCH]


def test_starts_at_the_same_second_of_each_minute_are_a_job() -> None:
    stream = Stream()
    for start in range(40):
        stream.producer(Client(), START_MS + start * MINUTE_MS, life_ms=9_000, requests=4)

    assert kinds(stream) == [Pattern.CRON_JOB]


def test_a_restart_loop_with_growing_pauses() -> None:
    stream, at_ms = Stream(), START_MS
    for pause_s in (10, 20, 40, 80, 160, 300, 300, 300):
        stream.producer(Client(), at_ms, life_ms=2_000, requests=3)
        at_ms += pause_s * 1_000

    [finding] = found(stream)

    assert finding.kind is Pattern.RESTART_LOOP
    assert (
        "is in a restart loop: 8 starts, one after the other, every 1.2 min, with growing pauses"
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
    assert finding.text.endswith("each in use for about 9 s (and 3 more like it)")
    assert finding.addresses == ("10.0.3.0", "10.0.3.1", "10.0.3.2", "10.0.3.3")
    assert finding.ids == 200


def test_a_loop_that_comes_up_at_a_new_address_each_time() -> None:
    stream = Stream()
    for start in range(40):
        client = Client(address=f"10.1.0.{start}", client_id=f"etl-7f9c5d-x{start}q2k")
        stream.producer(client, START_MS + start * 47_000, life_ms=9_000, requests=4)

    [finding] = found(stream)

    assert finding.kind is Pattern.RESTART_LOOP
    assert (
        "clients etl-*-* at several addresses (Java 3.7.0) are in a restart loop: 40 starts, " in finding.text
    )
    assert "every 47 s, 40 new ids" in finding.text
    assert len(finding.addresses) == 40


def test_refused_starts_are_a_loop_too() -> None:
    stream = Stream()
    for start in range(25):
        at_ms = START_MS + start * 130_000
        producer_id = stream.allocate(Client(), at_ms)
        for retry in range(3):
            stream.decide(Client(), at_ms + 100 * retry, producer_id, "refuse", "first_seen")

    [picture] = pictures(stream)

    assert (picture.new_ids, picture.refused_ids, picture.never_admitted_ids) == (25, 25, 25)
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
    assert finding.text == (
        "client etl at 10.0.3.7 (Java 3.7.0) opens a producer per batch: 400 new ids in 5.5 min, 100 % of them sent "
        "one request, 100 % lived under a second, 100 ids per connection"
    )
    assert finding.evidence["requests"] == 1.0
    assert finding.evidence["connections"] == 0.01


def test_a_loop_with_its_process_id_in_the_client_id_is_a_loop() -> None:
    stream, chance = Stream(), random.Random(11)
    for number in range(60):
        client = Client(client_id=f"etl-{chance.randrange(100, 30_000)}")
        stream.producer(client, START_MS + number * 11_000, life_ms=2_000, requests=1)

    assert kinds(stream) == [Pattern.RESTART_LOOP]


def test_one_batch_each_from_ever_new_addresses() -> None:
    stream, chance, at_ms = Stream(), random.Random(2), START_MS
    for number in range(50):
        client = Client(address=f"10.2.{number // 200}.{number % 200}", client_id="lambda")
        stream.producer(client, at_ms, life_ms=0, requests=1)
        at_ms += int(chance.expovariate(1 / 30_000))

    [finding] = found(stream)

    assert finding.kind is Pattern.PRODUCER_PER_BATCH
    assert (
        "client lambda at several addresses (Java 3.7.0) opens a producer per batch: 50 new ids "
        in finding.text
    )


# One producer per task, many at one address


def tasks(life_ms: int = 2_000) -> Stream:
    stream, chance, at_ms = Stream(), random.Random(1), START_MS
    for number in range(300):
        client = Client(client_id=f"producer-{number + 1}")
        stream.producer(client, at_ms, life_ms=life_ms, requests=9)
        at_ms += chance.randrange(10, 1_200)
    return stream


def test_one_producer_per_request_or_job() -> None:
    [finding] = found(tasks())

    assert finding.kind is Pattern.PRODUCER_PER_TASK
    assert finding.text == (
        "clients producer-* at 10.0.3.7 (Java 3.7.0) open a producer per request or job: 300 new ids in 3.2 min, each "
        "in use for about 2 s, 9 requests each"
    )


def threads(number: int = 64) -> Stream:
    stream = Stream()
    for thread in range(number):
        stream.producer(Client(client_id=f"producer-{thread + 1}"), START_MS + 300 * thread)
    return stream


def test_many_producers_at_one_address_may_be_threads() -> None:
    [finding] = found(threads())

    assert finding.kind is Pattern.SHARED_ADDRESS
    assert finding.text == "50 clients behind one address, 10.0.3.7: 64 producers at once, 64 new ids"
    assert "threads of one process" in finding.remedy


# Deployments and steady producers


def deployment(pods: int = 40, apart_ms: int = 2_000, *, ends: bool = True) -> Stream:
    """Each pod is replaced by a new one; the old ones are known from before the window."""
    stream = Stream()
    for pod in range(pods):
        old = Client(address=f"10.3.0.{pod}", client_id=f"orders-5c4f9c-{pod}x7k")
        new = Client(address=f"10.4.0.{pod}", client_id=f"orders-6d5f9c-{pod}x7k")
        at_ms = START_MS + 20 * MINUTE_MS + pod * apart_ms
        if ends:
            stream.use(old, 70 + pod, START_MS + 1_000 * pod, at_ms + 5_000, 100)
        stream.producer(new, at_ms)
    return stream


def test_a_deployment_replaces_all_instances() -> None:
    [finding] = found(deployment())

    assert finding.kind is Pattern.ROLLING_DEPLOYMENT
    assert finding.text == (
        "clients orders-*-* at several addresses (Java 3.7.0) were deployed: 1 times all instances (up to 40) were "
        "replaced, one after the other"
    )
    assert (finding.ids, finding.evidence["instances"]) == (40, 40)


def test_near_miss_new_instances_beside_the_old_ones_are_no_deployment() -> None:
    [finding] = found(deployment(ends=False))

    assert finding.kind is Pattern.STEADY
    assert finding.text.endswith("are steady: 40 long-lived producers, 40 new ids")


def test_near_miss_two_instances_are_no_deployment() -> None:
    assert Pattern.ROLLING_DEPLOYMENT not in kinds(deployment(pods=2))


def test_steady_producers_that_were_there_before() -> None:
    stream = Stream()
    for number in range(7):
        client = Client(address=f"10.0.0.{number}", client_id="billing")
        stream.decide(client, START_MS + number * MINUTE_MS, 70 + 1_000 * number, reason="refresh")

    [picture] = pictures(stream)
    [finding] = findings(picture, WINDOW)

    assert (picture.new_ids, picture.returned_ids) == (0, 7)
    assert finding.text == (
        "client billing at several addresses (Java 3.7.0) is steady: 7 long-lived producers"
    )


def test_one_client_id_at_many_addresses_is_shared() -> None:
    stream = Stream()
    for number in range(12):
        stream.decide(Client(address=f"10.0.0.{number}"), START_MS, 70 + number, reason="refresh")

    [finding] = found(stream)

    assert finding.kind is Pattern.SHARED_CLIENT_ID
    assert finding.text == "12 addresses with the client id etl: 12 producers at once, 0 new ids"


def test_near_miss_long_lived_producers_among_shorter_ones_are_not_steady() -> None:
    stream = Stream()
    for number in range(2):
        stream.decide(Client(address=f"10.0.0.{number}"), START_MS, 70 + number, reason="refresh")
    for number in range(7):
        stream.producer(Client(), START_MS + number * number * MINUTE_MS, life_ms=10 * MINUTE_MS, requests=9)

    assert kinds(stream) == [Pattern.UNKNOWN]


def test_instances_that_come_and_go_beside_a_lasting_one_scale() -> None:
    stream, chance = Stream(), random.Random(12)
    stream.decide(Client(address="10.0.0.1", client_id="web-1"), START_MS, 70, reason="refresh")
    for number in range(12):
        client = Client(address=f"10.0.1.{number}", client_id=f"web-{number + 2}")
        stream.producer(
            client,
            START_MS + chance.randrange(5 * MINUTE_MS, 50 * MINUTE_MS),
            life_ms=3 * MINUTE_MS + 7_777 * number,
            requests=90,
        )

    assert kinds(stream) == [Pattern.AUTOSCALING]


def test_producers_that_follow_an_error_each_time() -> None:
    stream, chance, at_ms = Stream(), random.Random(6), START_MS
    for _ in range(40):
        life_ms = chance.randrange(2_000, 40_000)
        producer_id = stream.producer(Client(), at_ms, life_ms=life_ms, requests=50)
        stream.error(Client(), producer_id, at_ms + life_ms + 30, 10)
        at_ms += life_ms + 500

    [finding] = found(stream)

    assert finding.kind is Pattern.PRODUCER_PER_ERROR
    assert "100 % of its 40 new ids" in finding.text
    assert "(code 10)" in finding.text


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
        name = f"hash-{number}"
        stream.decide(client, at_ms + 20, producer_id, transactional=True, transactional_id_hash=name)
        stream.use(client, producer_id, at_ms + 20, at_ms + 900, 3)
        at_ms += int(chance.expovariate(1 / 40_000))

    [finding] = found(stream)

    assert finding.kind is Pattern.RANDOM_TRANSACTIONAL_IDS
    assert "makes up a transactional id at each start: 40 new ids in " in finding.text
    assert finding.text.endswith(", 40 different transactional ids")


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
    [finding] = found(unused(100, 5))

    assert finding.kind is Pattern.UNUSED_IDS
    assert finding.text == (
        "client etl at 10.0.3.7 (librdkafka 1.9.2) opens producers that never send: 95 of 100 ids handed out "
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


def test_near_miss_transactional_ids_that_wait_for_their_next_use() -> None:
    """Flink opens a pool of transactional producers, and uses one of them for each checkpoint."""
    stream = Stream()
    for number in range(40):
        producer_id = stream.allocate(Client(), START_MS + 1_000 * number, transactional=True)
        if number < 4:
            at_ms = START_MS + 60_000 * number
            stream.decide(Client(), at_ms, producer_id, transactional=True, transactional_id_hash=f"{number}")
            stream.use(Client(), producer_id, at_ms, at_ms + 30_000, 50)
    stream.alive(END_MS)

    [picture] = pictures(stream)

    assert (picture.allocated_ids, picture.unused_ids) == (40, 0)
    assert [finding.kind for finding in findings(picture, WINDOW)] == [Pattern.TRANSACTIONAL]


# Refused ids


def refused_in_turn(ids: int, *, admitted: bool = False, every_ms: int = 35_000) -> Stream:
    """A client whose ids are refused three times each; then another one takes its place, on another connection."""
    stream = Stream()
    for number in range(ids):
        at_ms = START_MS + every_ms * number
        producer_id = stream.allocate(Client(), at_ms)
        for retry in range(3):
            stream.decide(
                Client(), at_ms + 10_000 * retry, producer_id, "refuse", "first_seen", throttle_time_ms=10_000
            )
        if admitted:
            stream.decide(Client(), at_ms + 30_000, producer_id, "admit", "queue")
            stream.use(Client(), producer_id, at_ms + 30_000, at_ms + 30_100, 1)
    stream.alive(END_MS)
    return stream


def test_a_client_that_takes_another_id_after_a_refusal_opens_no_producer_per_batch() -> None:
    stream = refused_in_turn(40)
    for number in range(0, 40, 4):  # some get in, and send what has waited
        at_ms = START_MS + 35_000 * number + 32_000
        stream.decide(Client(), at_ms, 600 + number, "admit", "queue")
        stream.use(Client(), 600 + number, at_ms, at_ms + 100, 1)

    finding = found(stream)[0]

    assert finding.kind is Pattern.NEW_ID_AFTER_REFUSAL
    assert finding.text == (
        "client etl at 10.0.3.7 (Java 3.7.0) takes another id when one is refused: 39 of 50 new ids were "
        "refused and replaced within seconds"
    )
    assert Pattern.PRODUCER_PER_BATCH not in kinds(stream)


def test_a_producer_per_batch_stays_one_when_it_is_refused() -> None:
    stream = refused_in_turn(40)
    for number in range(40):
        stream.producer(Client(), START_MS - 100_000 + 2_000 * number, life_ms=10)

    assert Pattern.PRODUCER_PER_BATCH in kinds(stream)


@pytest.mark.parametrize("stream", [refused_in_turn(40, admitted=True), refused_in_turn(40, every_ms=50_000)])
def test_near_miss_ids_that_were_admitted_or_came_later(stream: Stream) -> None:
    assert Pattern.NEW_ID_AFTER_REFUSAL not in kinds(stream)


def test_near_miss_many_clients_of_one_address_that_start_and_wait_together() -> None:
    stream = Stream()
    for retry in range(6):
        for number in range(20):
            at_ms = START_MS + 10_000 * retry + number
            stream.decide(Client(), at_ms, 100 + number, "refuse", "queue", throttle_time_ms=10_000)
    stream.alive(END_MS)

    [picture] = pictures(stream)

    assert picture.after_refusal_ids == 0 == kinds(stream).count(Pattern.NEW_ID_AFTER_REFUSAL)


def test_refused_ids_that_never_came_back_have_given_up() -> None:
    stream = refused_in_turn(38)
    for number in range(5):  # refused a moment ago: they may come back
        stream.decide(Client(), END_MS - 35_000, 900 + number, "refuse", "queue", throttle_time_ms=10_000)

    [picture] = pictures(stream)

    assert (picture.never_admitted_ids, picture.gave_up) == (43, 38)


# Gateways and ids


def test_a_gateway_that_has_stopped_or_is_silent_is_not_quoted() -> None:
    stopped, silent, running = (Stream(gateway_id=name, incarnation=name) for name in ("old", "dead", "new"))
    stopped.config(END_MS - 60_000, 7)
    stopped.make(LifecycleEvent, END_MS - 50_000, None, phase="stop", **STATE)
    silent.config(END_MS - 10 * MINUTE_MS, 8)
    running.config(START_MS, 9)
    running.producer(Client(), START_MS)
    running.alive(END_MS)

    [picture] = pictures(stopped, silent, running)

    assert picture.quota is not None
    assert (picture.quota.effective.rate_milli, picture.quota.source) == (9_000, "new")


def test_an_id_of_two_users_is_named() -> None:
    stream, tally = Stream(), Tally()
    producer_id = stream.producer(Client(user="alice"), START_MS)
    stream.producer(Client(user="carol"), START_MS)
    stream.decide(Client(user="bob"), START_MS + 1_000, producer_id)
    for event in stream.events():
        tally.add(event)

    assert list(shared_ids(tally)) == [SharedId(producer_id, ("alice", "bob"))]


def test_producers_that_are_never_closed() -> None:
    stream, tally = Stream(), Tally()
    for number in range(60):
        stream.producer(Client(), START_MS + 7_000 * number, life_ms=100)
    for event in stream.events():
        tally.add(event)
    tally.count_connections("alice", 61)
    tally.count_connections("alice", -1)

    [picture] = user_pictures(tally, WINDOW, None)

    batch, unclosed = findings(picture, WINDOW)
    assert (batch.kind, unclosed.kind) == (Pattern.PRODUCER_PER_BATCH, Pattern.UNCLOSED)
    assert unclosed.text == (
        "client etl at 10.0.3.7 (Java 3.7.0) opens producers and never closes them: 60 connections are open, 60 new ids"
    )


def test_ids_that_write_to_many_partitions() -> None:
    for ids, partitions, expected in ((60, 200, True), (60, 19, False), (40, 200, False)):
        stream = Stream()
        for number in range(ids):
            producer_id = stream.producer(Client(client_id=f"app-{number}"), START_MS + 7_000 * number)
            for slice_ms, written in ((60_000, 1), (120_000, partitions)):
                at_ms = START_MS + 7_000 * number + slice_ms
                stream.use(Client(), producer_id, at_ms, at_ms, 5, partitions=written)
        wide = [finding for finding in found(stream) if finding.kind is Pattern.MANY_PARTITIONS]
        assert bool(wide) is expected, (ids, partitions)
        if wide:
            assert "200 partitions with each of 60 ids: about 12,000 producer states" in wide[0].text
            assert wide[0].evidence["states"] == 12_000


# All of them


def test_users_are_told_apart() -> None:
    stream = restart_loop()
    for number in range(7):
        stream.producer(Client(user="bob", client_id=f"producer-{number}"), START_MS + 300 * number)

    assert kinds(stream, "alice") == [Pattern.RESTART_LOOP]
    assert kinds(stream, "bob") == [Pattern.STEADY]


def test_a_loop_beside_healthy_producers_of_the_same_user_comes_first() -> None:
    stream = restart_loop()
    for pod in range(8):
        stream.producer(Client(address=f"10.9.0.{pod}"), START_MS + pod * 100)

    assert kinds(stream) == [Pattern.RESTART_LOOP, Pattern.SHARED_CLIENT_ID]


def test_the_rest_is_unknown_where_most_new_ids_fit_nothing() -> None:
    stream, chance = restart_loop(interval_ms=40_000, starts=9), random.Random(8)
    for number in range(15):
        client = Client(address="10.0.9.9", client_id="cli")
        at_ms = START_MS + chance.randrange(5 * MINUTE_MS, 8 * MINUTE_MS)
        stream.producer(client, at_ms, life_ms=200_000 + 9_000 * number, requests=60)

    loop, unknown = found(stream)

    assert (loop.kind, unknown.kind) == (Pattern.RESTART_LOOP, Pattern.UNKNOWN)
    assert unknown.text == "15 of 24 new ids fit no known pattern"


def test_every_pattern_has_a_sentence_and_a_remedy() -> None:
    assert set(PATTERN_WORDS) == set(Pattern)
    assert all(words.sentence and words.remedy for words in PATTERN_WORDS.values())
