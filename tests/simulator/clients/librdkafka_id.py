"""librdkafka's producer id: asked for, bumped by itself, reset (`rdkafka_idempotence.c`)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.toppar import NO_ID
from tests.simulator.clients.turns import NEVER

if TYPE_CHECKING:
    from tests.simulator.clients.librdkafka import LibrdkafkaProducer
    from tests.simulator.clients.node import Node

_AGAIN_S = 0.5
_SOON_S = 0.001
_FATAL = frozenset(
    {50, errors.TRANSACTION_FORBIDDEN, errors.CLUSTER_FORBIDDEN, errors.STALE_EPOCH, errors.FENCED}
)


class IdState(Enum):
    """`rd_kafka_idemp_state_t`."""

    INIT = auto()
    WANTED = auto()
    ASKED = auto()
    ASSIGNED = auto()
    DRAIN_RESET = auto()
    DRAIN_BUMP = auto()
    WAIT_TXN_ABORT = auto()
    FATAL = auto()


class ProducerId:
    """The id of one producer, and why it may not be used at present."""

    def __init__(self, client: LibrdkafkaProducer) -> None:
        self.state = IdState.INIT
        self.pid = NO_ID
        self.toppars_in_flight = 0
        self._client = client
        self._next_try_s = NEVER

    @property
    def usable(self) -> tuple[int, int]:
        """The id and epoch to send with; -1 while there is none to use."""
        return self.pid if self.state is IdState.ASSIGNED else NO_ID

    def start(self, *, at_once: bool) -> None:
        """`rd_kafka_idemp_start`."""
        if self.state is not IdState.ASKED:
            self._set(IdState.WANTED)
        self._try_after(_SOON_S if at_once else _AGAIN_S)

    def serve(self, now_s: float) -> None:
        """Ask when it is time to."""
        if self._next_try_s <= now_s:
            self._next_try_s = NEVER
            self.go_on()
        if self._next_try_s != NEVER:
            self._client.wake_at(self._next_try_s)

    def go_on(self) -> None:
        """`rd_kafka_idemp_pid_fsm`: ask, if an id is wanted and there is a broker to ask."""
        client = self._client
        if self.state is not IdState.WANTED or client.told.fatal:
            return
        node = client.node_for_id()
        if node is None:
            self._try_after(_AGAIN_S)
            return
        self.state = IdState.ASKED
        self._ask(node)

    def _ask(self, node: Node) -> None:
        client, connection = self._client, node.connection
        assert connection is not None
        version = node.speaks(frames.INIT_PRODUCER_ID, client.versions[frames.INIT_PRODUCER_ID])
        is_transactional = client.transactional_id is not None
        timeout_ms = int(client.t.transaction_s * 1000) if is_transactional else -1
        held = self.pid if is_transactional else NO_ID
        frame = frames.init_producer_id(version, client.name, client.transactional_id, timeout_ms, held)
        if client.is_traced:
            client.note(f"asks {node.node_id} for an id, has {held}")

        def answered(answer: bytes | None) -> None:
            if answer is None:
                self._failed(errors.NETWORK)
                return
            found = messages.init_producer_id_answer(answer, 0, len(answer), version)
            if found.error_code:
                self._failed(found.error_code)
            elif self.state is IdState.ASKED:
                self.pid = (found.producer_id, found.producer_epoch)
                if client.is_traced:
                    client.note(f"is {self.pid}")
                self._set(IdState.ASSIGNED)

        connection.ask(frame, answered)

    def _failed(self, code: int) -> None:
        """`rd_kafka_idemp_request_pid_failed`."""
        client = self._client
        if code in _FATAL:
            client.is_of_no_use(errors.words(code))
            return
        if code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR):
            client.transactions.forget_coordinator()
        self._set(IdState.WANTED)
        self._try_after(_AGAIN_S)

    def bump(self, *, abort_first: bool = True) -> None:
        """`rd_kafka_idemp_drain_epoch_bump`: when nothing is in flight; a transaction has to be aborted before."""
        if abort_first and self._client.transactional_id is not None:
            self._set(IdState.WAIT_TXN_ABORT)
            self._client.transactions.abortable("epoch bump", needs_epoch=True)
            return
        self._set(IdState.DRAIN_BUMP)
        self._check_drained()

    def reset(self) -> None:
        """`rd_kafka_idemp_drain_reset`: another id when nothing is in flight."""
        self._set(IdState.DRAIN_RESET)
        self._check_drained()

    def drained(self) -> None:
        """A partition has nothing in flight any more."""
        self.toppars_in_flight -= 1
        self._check_drained()

    def _check_drained(self) -> None:
        if self.toppars_in_flight:
            return
        if self.state is IdState.DRAIN_RESET or (
            self.state is IdState.DRAIN_BUMP and self._client.transactional_id is not None
        ):
            self._set(IdState.WANTED)
            self._try_after(_SOON_S)
        elif self.state is IdState.DRAIN_BUMP and self.pid != NO_ID:
            self.pid = (self.pid[0], self.pid[1] + 1)
            if self._client.is_traced:
                self._client.note(f"bumps its epoch: {self.pid}")
            self._set(IdState.ASSIGNED)

    def _set(self, state: IdState) -> None:
        if self._client.told.fatal and state not in (IdState.DRAIN_RESET, IdState.DRAIN_BUMP):
            state = IdState.FATAL
        self.state = state
        if self._client.transactional_id is not None:
            self._client.transactions.id_changed(state)
        self._client.wake()

    def _try_after(self, for_s: float) -> None:
        self._next_try_s = self._client.now_s + for_s
        self._client.wake()
