"""Who makes the state owner slow, or waits for its end, sheds no quota by it; nobody else waits.

Stopped by SIGSTOP it is gone after a second: then what passes has a ceiling, over all workers together. Stopped for
parts of a second it is slow, and moves: nothing passes that it has not decided.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from pidgate.protocol.errors import ErrorCode
from pidgate.quota.grace import GRACE_TIMES_RATE
from tests.hostile.attack import HOSTILE_USER, Delivery, Outcome, Place, Target
from tests.hostile.site import HONEST_USER, OTHERS_WAIT_S, Site, running_site
from tests.support import raw
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

INIT_PRODUCER_ID: Final = 22
HONEST_IDS: Final = range(20_000_000, 20_000_005)
CONNECTIONS: Final = 6
EACH: Final = 3
RATE: Final = 0.4
CEILING: Final = round(GRACE_TIMES_RATE * RATE)
QUOTAS: Final = {
    "users": {
        HONEST_USER: {"producer_ids_rate": 1_000_000},
        HOSTILE_USER: {"producer_ids_rate": RATE, "transactional_ids_rate": RATE},
    },
    # The ceiling is one of each window, and windows begin at multiples of the machine's uptime: of an hour, one in a
    # thousand runs has the end of a window in it.
    "producer_ids": {"max_throttle": "100ms", "grace": "0s", "window": "24h"},
}
LOG_LINES: Final = 6
"""A second: each worker says that requests passed, and that ids were refused."""
STOPPED_S: Final = 0.3
MOVING_S: Final = 0.05


def state_owner_of(gateway: GatewayProcess) -> int:
    started = [event for event in gateway.log_events("process_started") if event["role"] == "state_owner"]
    return int(started[-1]["pid"])


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Have it stand still in the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@contextmanager
def slow(process: int) -> Iterator[None]:
    """Have it stand still for most of the time in the block, and never for as long as one that is gone."""
    over = threading.Event()

    def hinder() -> None:
        while not over.is_set():
            with stopped(process):
                time.sleep(STOPPED_S)
            over.wait(MOVING_S)

    thread = threading.Thread(target=hinder, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _init(name: str) -> bytes:
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    return raw.request(INIT_PRODUCER_ID, 4, {**asked, "producer_id": -1, "producer_epoch": -1})


def _attacked(site: Site, target: Target) -> list[Outcome]:
    """Bring new ids and new transactional ids, over connections that find both workers."""
    attackers = [site.connect(HOSTILE_USER) for _ in range(CONNECTIONS)]
    outcomes: list[Outcome] = []

    def attack(number: int) -> None:
        names = [_init(f"{target.topic}-{number}-{one}") for one in range(EACH)]
        frames = [frame for name in names for frame in (target.produce(), name)]
        outcomes.append(attackers[number].attack(frames, Delivery.PIPELINED))

    threads = [threading.Thread(target=attack, args=(number,), daemon=True) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for attacker in attackers:
        attacker.close()
    assert len(outcomes) == CONNECTIONS, "a connection was neither answered nor closed"
    return outcomes


def _passed_inits(outcomes: Sequence[Outcome]) -> int:
    """Count the InitProducerIds that reached a broker: each refusal of the gateway names a throttle."""
    answers = [
        raw.decoded(INIT_PRODUCER_ID, 4, answer) for outcome in outcomes for answer in outcome.answers[1::2]
    ]
    assert len(answers) == CONNECTIONS * EACH
    refused = [
        answer
        for answer in answers
        if answer["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and answer["throttle_time_ms"] > 0
    ]
    return len(answers) - len(refused)


def _while_it_is_gone(site: Site) -> None:
    """Attack while the state owner is stopped; check that the quota is held, and that all that passed is counted."""
    target = Target(site.topic(), 9, site.place)
    with site.under_attack(log_lines=LOG_LINES), stopped(state_owner_of(site.gateway)):
        outcomes = _attacked(site, target)
    ids, inits = len(site.ids_at_brokers(target.topic)), _passed_inits(outcomes)
    assert 1 <= ids <= CEILING, f"{ids} ids passed while the state owner was gone"
    assert 1 <= inits <= CEILING, f"{inits} transactional ids passed while the state owner was gone"
    _check_counted(site, ids, inits)


def _check_counted(site: Site, ids: int, inits: int) -> None:
    """Workers report once a second: wait until the metrics name the user for just what passed."""
    of_bob = {"user": HOSTILE_USER}
    give_up_s = time.monotonic() + 10
    while True:
        metrics = site.gateway.metrics()
        found = (
            metrics.value("pidgate_quota_failed_open_total"),
            metrics.value("pidgate_producer_ids_admitted_total", **of_bob, reason="fail_open"),
            metrics.value("pidgate_producer_ids_init_failed_open_total", **of_bob),
        )
        if found == (ids + inits, ids, inits):
            return
        assert time.monotonic() < give_up_s, f"{ids} ids and {inits} inits passed, counted {found}"
        time.sleep(0.1)


def test_while_the_state_owner_is_gone_a_user_has_a_ceiling(sasl_cluster: Cluster) -> None:
    with running_site(sasl_cluster, Place(workers=2), quotas=QUOTAS) as site:
        _while_it_is_gone(site)


@pytest.mark.nightly
def test_while_the_state_owner_is_slow_nothing_passes_undecided(sasl_cluster: Cluster) -> None:
    with running_site(sasl_cluster, Place(workers=2), quotas=QUOTAS) as site:
        target, waits_s = Target(site.topic(), 9, site.place), list[float]()

        def beside() -> None:
            """Bring new ids of another user, which the same state owner decides about."""
            with site.connect(HONEST_USER) as honest:
                for producer_id in HONEST_IDS:
                    began_s = time.monotonic()
                    honest.ask(target.produce(producer_id))
                    waits_s.append(time.monotonic() - began_s)

        honest = threading.Thread(target=beside, daemon=True)
        with site.under_attack(log_lines=LOG_LINES), slow(state_owner_of(site.gateway)):
            honest.start()
            outcomes = _attacked(site, target)
            honest.join()
        passed = site.ids_at_brokers(target.topic)
        assert passed >= set(HONEST_IDS), "the honest user's ids were refused"
        assert max(waits_s) < OTHERS_WAIT_S
        # A bucket of less than a token lets in one.
        assert len(passed - set(HONEST_IDS)) <= 1
        assert _passed_inits(outcomes) <= 1
        assert site.gateway.metrics().value("pidgate_quota_failed_open_total") == 0


@pytest.mark.nightly
def test_in_observe_all_is_forwarded_and_counted(sasl_cluster: Cluster) -> None:
    """Nothing is refused there, so nothing waits, and a state owner that comes back counts it."""
    with running_site(sasl_cluster, Place(workers=2, mode="observe"), quotas=QUOTAS) as site:
        target = Target(site.topic(), 9, site.place)
        with site.under_attack(log_lines=LOG_LINES), slow(state_owner_of(site.gateway)):
            outcomes = _attacked(site, target)
        assert _passed_inits(outcomes) == CONNECTIONS * EACH
        assert len(site.ids_at_brokers(target.topic)) == CONNECTIONS * EACH
        give_up_s = time.monotonic() + 10
        while site.would_refuse() < CONNECTIONS * EACH - 1:
            assert time.monotonic() < give_up_s, f"counted {site.would_refuse():.0f}"
            time.sleep(0.1)
