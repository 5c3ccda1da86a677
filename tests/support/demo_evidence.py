"""Hand-made evidence of a demo that went well, for the verifier, summary and screen to be tried on."""

from collections import Counter
from fractions import Fraction

from pidgate.load.journal import ProducerJournal, record_value
from tools.sandbox.demo.evidence import BrokerEvidence, Evidence, GatewayEvidence, Half
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, CLICKS, NIGHTLY, ORDERS, PARTITIONS, Plan
from tools.sandbox.demo.segments import TopicIds
from tools.sandbox.demo.watch import Point
from tools.sandbox.log_checker import LogRecord

PLAN = Plan(quota=Fraction(2))
ADMITTED, GIVEN_UP = (11, 12, 13), (14, 15)
OUT_OF_MEMORY = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
CLICKS_PARTITIONS = range(PARTITIONS[CLICKS])
REFUSAL = (19, 9_000, "producer_ids_rate quota of user mallory exceeded: producer id 14 is new")


def mallory() -> ProducerJournal:
    journal = ProducerJournal("mallory", CLICKS)
    for producer_id in ADMITTED + GIVEN_UP:
        journal.sent(None, producer_id, at_ms=1_000)
    for producer_id in ADMITTED:
        journal.acknowledged(None, producer_id, at_ms=1_100)
    for producer_id in GIVEN_UP:
        journal.refused(None, producer_id, *REFUSAL, at_ms=1_500)
        journal.failed(None, producer_id, "given up", at_ms=13_000)
    return journal


def journal_of(user: str, topic: str, records: int) -> ProducerJournal:
    journal = ProducerJournal(user, topic)
    for n in range(records):
        journal.sent(0, n, at_ms=n * 10)
        journal.acknowledged(0, n, at_ms=n * 10 + 3 + n)
    return journal


def log_of(*users: str, records: int) -> list[LogRecord]:
    values = [record_value(user, 0, n) for user in users for n in range(records)]
    return [LogRecord(0, offset, value) for offset, value in enumerate(values)]


def segments() -> dict[str, TopicIds]:
    clicks = Counter({(partition, each): 1 for partition in CLICKS_PARTITIONS for each in ADMITTED})
    return {
        CLICKS: TopicIds(CLICKS, clicks),
        ORDERS: TopicIds(ORDERS, Counter({(0, 1): 4, (0, 2): 4})),
        NIGHTLY: TopicIds(NIGHTLY, Counter({(0, 3): 1})),
    }


def half(*, dead: bool) -> Half:
    return Half(
        attack_s=10.0 if dead else 15.0,
        points=(Point(0.0, 40, 0, True), Point(10.0, 79, 3, not dead)),
        broker=BrokerEvidence(
            exit_code=3 if dead else None,
            out_of_memory=OUT_OF_MEMORY if dead else "",
            answers=not dead,
            states=None
            if dead
            else {
                CLICKS: {partition: list(ADMITTED) for partition in CLICKS_PARTITIONS},
                ORDERS: {0: [1, 2]},
                NIGHTLY: {0: [3]},
            },
            segments=segments(),
            log={} if dead else {ORDERS: log_of(ALICE, BOB, records=4), NIGHTLY: log_of(CAROL, records=1)},
        ),
        mallory={"mallory-etl-1": mallory()},
        carol=journal_of(CAROL, NIGHTLY, 1),
        bystanders={user: journal_of(user, ORDERS, 4) for user in (ALICE, BOB)},
        delay_ms=4.0,
        notes={
            user: {"client": "confluent", "client_id": f"{user}-orders", "refused": 0}
            for user in (ALICE, BOB)
        },
    )


def refused_event(user: str, client_id: str, host: str) -> dict[str, str]:
    return {
        "event": "producer_id_refused",
        "user": user,
        "client_id": client_id,
        "address": f"{host}:4000",
    }


def good_evidence() -> Evidence:
    """Passes every check with PLAN. A new one each time: change it as you like."""
    through = half(dead=False)
    through.gateway = GatewayEvidence(
        alive_after_attack=True,
        exit_code=0,
        ran_s=20.0,
        log_events=[{"event": "listening"}, refused_event("mallory", "mallory-etl-1", "127.0.0.66")],
        metrics=None,
    )
    baseline = [{user: journal_of(user, ORDERS, 3) for user in (ALICE, BOB)}]
    return Evidence(
        baseline=baseline,
        baseline_delay_ms=1.0,
        direct=half(dead=True),
        through_gateway=through,
        total_s=60.0,
    )
