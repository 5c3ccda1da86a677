"""What passes while the quota's state is being restored: ten windows' worth of each user, and what waits."""

from __future__ import annotations

from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN, Step
from pidgate.gateway.proxy.apis.produce import LOOK_AGAIN_MS, RESTORED_WITHIN_MS
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk

RATE = 2
CEILING = 10 * RATE


class Restoring:
    """A gateway that is reading its history, and a connection of alice."""

    def __init__(self, rate: int = RATE, mode: Mode = Mode.ENFORCE) -> None:
        quotas = Quotas(mode=mode, default=UserQuota.per_window(rate))
        self.state = ProducerIdQuota(quotas, lambda: 1, 0, is_restored=False)
        admission = Admission(quotas, lambda: 1, 0, state=self.state)
        self.talk = Talk(admission, Client("alice", "", "10.0.0.1", 1))
        self.now_ms = 1_000

    def send(self, producer_id: int) -> Step:
        request = framed(produce_request(9, [("t", [(0, record_batch(producer_id))])], correlation_id=1))
        return self.talk.request(request, 4, len(request), self.now_ms)

    def later(self, milliseconds: int) -> int:
        """Let time pass; return how many held requests are forwarded."""
        self.now_ms += milliseconds
        return len(self.talk.release(self.now_ms)[0])

    def passes(self, ids: int) -> int:
        return sum(self.send(producer_id) is FORWARD for producer_id in range(1, ids + 1))


@rule(
    "While the state is being restored ten windows' worth of new ids of a user pass; the rest waits and is judged.",
    "failures",
)
def test_above_the_ceiling_a_request_waits_for_the_end_of_restoring() -> None:
    gateway = Restoring()
    assert gateway.passes(CEILING) == CEILING
    assert gateway.send(1) is FORWARD, "the control: what has passed passes again"
    assert gateway.send(CEILING + 1) is TAKEN
    assert gateway.later(LOOK_AGAIN_MS) == 0
    assert not gateway.talk.refused
    gateway.state.insert_uncharged("alice", CEILING + 1, gateway.now_ms)
    gateway.state.hand_over(gateway.now_ms)
    gateway.state.end_restoring()
    assert gateway.later(LOOK_AGAIN_MS) == 1, "it was known, as the history says"


def test_a_request_waits_for_10_s_at_most() -> None:
    gateway = Restoring()
    gateway.passes(CEILING)
    gateway.send(CEILING + 1)
    assert gateway.later(RESTORED_WITHIN_MS - 1) == 0
    assert not gateway.talk.refused
    assert gateway.later(LOOK_AGAIN_MS) == 0
    assert [refusal.reason for refusal in gateway.talk.refused] == [Reason.FAIL_OPEN]


def test_a_rate_of_0_lets_nothing_pass() -> None:
    assert Restoring(rate=0).passes(3) == 0


def test_who_is_observed_has_no_ceiling() -> None:
    assert Restoring(mode=Mode.OBSERVE).passes(3 * CEILING) == 3 * CEILING
