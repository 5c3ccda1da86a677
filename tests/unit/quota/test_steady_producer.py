"""A steady producer stays on the cached path: one question for its id, and one for each partition while it is new."""

from typing import Any

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Forward, ProducerBatch, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota

QUOTAS = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(100))
PARTITIONS = 30


class CountingQuota(ProducerIdQuota):
    """The real state, which also counts how often it is asked."""

    asked = 0

    def decide(self, *request: Any) -> Forward | Refuse:
        self.asked += 1
        return super().decide(*request)


def batches(round_number: int) -> list[ProducerBatch]:
    return [(4711, 0, 10 * round_number, b"orders", partition) for partition in range(PARTITIONS)]


def test_the_state_is_asked_once_while_nothing_changes() -> None:
    state = CountingQuota(QUOTAS, lambda: 1, 0)
    admission = Admission(QUOTAS, lambda: 1, 0, state=state)
    client = Client(user="alice", client_id="app", address="10.0.0.1", connection_id=1)
    for round_number in range(1_000):
        verdict = admission.judge(client, batches(round_number), transactional=False, now_ms=round_number)
        assert isinstance(verdict, Forward)
    assert state.asked == 1


def test_a_new_connection_asks_again_and_is_steady_from_then_on() -> None:
    state = CountingQuota(QUOTAS, lambda: 1, 0)
    admission = Admission(QUOTAS, lambda: 1, 0, state=state)
    first = Client(user="alice", client_id="app", address="10.0.0.1", connection_id=1)
    assert isinstance(admission.judge(first, batches(0), transactional=False, now_ms=0), Forward)
    long_after_ms = 400_000  # nobody watches the id any more
    admission.sweep(long_after_ms)
    second = Client(user="alice", client_id="app", address="10.0.0.1", connection_id=2)
    for round_number in range(1, 100):
        verdict = admission.judge(
            second, batches(round_number), transactional=False, now_ms=long_after_ms + round_number
        )
        assert isinstance(verdict, Forward)
    assert state.asked == 2
