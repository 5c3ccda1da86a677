"""Two hours of a few users, judged by the real quota and told by the real recorder: events as gateways make them."""

from collections.abc import Iterator

from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.messages import InitProducerIdAnswer, InitProducerIdRequest
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Close, ProducerBatch
from pidgate.quota.entities import unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, UserQuota
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds

START_WALL_MS = 1_795_248_000_000

QUOTAS = enforcing(
    3,
    users={
        "watched": UserQuota.per_window(3, mode=Mode.OBSERVE),
        "free": UserQuota(exempt=True),
        "blocked": UserQuota.per_window(0),
    },
    window_ms=10 * 60_000,
    remember_ms=HOUR_MS,
)

NO_HEAD = RequestHead(0, 0, 0, None, 0, 0, 0)


class Gateway:
    """A World whose decisions are told. Grace holds for the first minute."""

    def __init__(self, run: str) -> None:
        state = ProducerIdQuota(QUOTAS, seeds(), 0)
        state.begin_grace(60_000)
        self.world = World(QUOTAS, Admission(QUOTAS, seeds(), 0, state=state))
        self.told: list[bytes] = []
        clocks = Clocks(lambda: self.world.now_ms, lambda: START_WALL_MS + self.world.now_ms)
        self.recorder = Recorder(
            lambda _key, value: self.told.append(value),
            Identity("gw-1:9180", run),
            clocks,
            RecorderSettings(),
            QUOTAS,
            cluster="5L6g3nShT-eMCtK--X86sw",
            applied_offsets=lambda: [len(self.told), 0, 7],
        )
        self.recorder.lifecycle("start", restored_from="nothing", grace_until_wall_ms=START_WALL_MS + 60_000)
        self.recorder.quotas_set(QUOTAS, self.world.now_ms)

    def connect(self, user: str, address: str = "10.0.3.7") -> "Producer":
        return Producer(self, self.world.connect(user, client_id=f"{user}-1", address=address))

    def pass_ms(self, time_ms: int) -> None:
        """Time goes by, in steps of at most a second as in a gateway."""
        end_ms = self.world.now_ms + time_ms
        while self.world.now_ms < end_ms:
            self.world.now_ms = min(end_ms, self.world.now_ms + 1_000)
            self.recorder.tick()
            self.recorder.gave_up(self.world.admission.sweep(self.world.now_ms))


class Producer:
    """One connection."""

    def __init__(self, gateway: Gateway, client: Client) -> None:
        self.gateway, self.client = gateway, client
        self.recorder = ConnectionRecorder(gateway.recorder, client, SaslExchange(), "0.0.0.0:9292", 1)
        self.recorder.software = ("apache-kafka-java", "3.9.0")

    def gets_id(self, producer_id: int) -> None:
        answer = InitProducerIdAnswer(0, producer_id, 0)
        asked = InitProducerIdRequest(None, -1, -1)
        self.recorder.producer_id_given(asked, answer, self.gateway.world.now_ms)

    def sends(self, *batches: ProducerBatch) -> None:
        world = self.gateway.world
        verdict = world.judge(self.client, *batches)
        assert not isinstance(verdict, Close)
        self.recorder.decided(verdict.decisions, b"", NO_HEAD, world.now_ms)
        if all(decision.admitted for decision in verdict.decisions):
            self.recorder.forwarded(list(batches), [100] * len(batches), 1_234, world.now_ms)

    def closes(self) -> None:
        self.gateway.world.close(self.client)
        self.recorder.closed("client")


def recorded() -> Iterator[bytes]:
    """All that was told, in order."""
    gateway = Gateway("3b9c55d0e1f2a4b6")
    early = gateway.connect("etl")
    early.gets_id(1_000)
    early.sends(batch(1_000))
    gateway.pass_ms(61_000)

    for user in ("watched", "free", "blocked", unidentified("GSSAPI")):
        other = gateway.connect(user, "2001:db8::17")
        for producer_id in range(2_000, 2_006):
            other.gets_id(producer_id)
            other.sends(batch(producer_id, topic=b"orders", partition=producer_id % 3))
            gateway.pass_ms(100)
        other.closes()

    # Beyond the burst; 3_005 comes back too early, and then until it is served; 3_006 comes back once.
    for producer_id in range(3_000, 3_007):
        early.sends(batch(producer_id))
    early.sends(batch(3_005, 5))
    late = gateway.connect("etl")
    late.sends(batch(3_005))
    gateway.pass_ms(10_000)
    early.sends(batch(3_006))
    for _ in range(20):
        gateway.pass_ms(10_000)
        early.sends(batch(3_005))
    early.sends(batch(1_000, 10), batch(3_000, 10))

    # First sight above sequence 0, and a refresh in a later slice.
    late.sends(batch(3_900, 77))
    gateway.pass_ms(900_000)
    early.sends(batch(1_000, 20))
    early.closes()
    late.closes()
    gateway.recorder.lifecycle("stop")
    while gateway.recorder.flush():
        pass
    assert gateway.recorder.failures == 0
    yield from gateway.told
