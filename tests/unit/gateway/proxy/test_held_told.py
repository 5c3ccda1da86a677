"""A beginning that a mute holds is told to the other gateways: once for each id, and not without a mute."""

from __future__ import annotations

from pidgate.events.definitions import DecisionEvent
from pidgate.events.reading import from_json
from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.proxy.apis.api import TAKEN
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk


class Script:
    """A connection of alice, and what it publishes."""

    def __init__(self, *, is_recorded: bool = True) -> None:
        quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(100))
        self.client = Client("alice", "", "10.0.0.1", 1)
        self.talk = Talk(Admission(quotas, lambda: 1, 0), self.client)
        self._values: list[bytes] = []
        recorder = Recorder(
            lambda _key, value: self._values.append(value),
            Identity("gw", "run"),
            Clocks(lambda: 0, lambda: 0),
            RecorderSettings(),
            quotas,
        )
        if is_recorded:
            sasl = self.talk.context.login.sasl
            self.talk.context.recorder = ConnectionRecorder(recorder, self.client, sasl, "main", 7)

    def holds(self, *batches: tuple[int, int], now_ms: int = 0) -> list[DecisionEvent]:
        """Hold a Produce with a batch of each (id, base sequence); return the decisions that are published."""
        partitions: list[tuple[int, bytes | None]] = [
            (at, record_batch(one, 0, sequence)) for at, (one, sequence) in enumerate(batches)
        ]
        frame = framed(produce_request(9, [("orders", partitions)], correlation_id=1))
        self._values.clear()
        assert self.talk.request(frame, 4, len(frame), now_ms) is TAKEN
        events = [from_json(value) for value in self._values]
        return [event for event in events if isinstance(event, DecisionEvent)]


@rule("A beginning that a mute holds is told to the other gateways.", "order")
def test_each_id_that_begins_a_partition_behind_a_mute_is_told() -> None:
    script = Script()
    script.talk.context.mute(1_000)
    told = script.holds((7, 0), (8, 5), (7, 0), (9, 0))
    assert [(one.producer_id, one.partition, one.decision, one.reason) for one in told] == [
        (7, 0, "hold", "held"),
        (9, 3, "hold", "held"),
    ]
    assert {(one.throttle_time_ms, one.tokens_after, one.request_partitions) for one in told} == {
        (0, None, 4)
    }


def test_an_id_is_told_again_before_others_stop_watching_it() -> None:
    script = Script()
    script.talk.context.mute(1_000_000)
    assert [len(script.holds((7, 0), now_ms=now_ms)) for now_ms in (0, 149_999, 150_000, 299_999)] == [
        1,
        0,
        1,
        0,
    ]


def test_without_a_mute_or_a_topic_nothing_is_told() -> None:
    waiting = Script()
    waiting.talk.require_login(Authentication())
    assert waiting.holds((7, 0)) == []
    silent = Script(is_recorded=False)
    silent.talk.context.mute(1_000)
    assert silent.holds((7, 0)) == []
