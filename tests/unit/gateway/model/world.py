"""The world of the model test: clients, gateway processes and brokers, one step at a time.

Everything between the client's socket and the broker's is the real code: a `Conversation` for each connection,
an `Admission` for each process, real Produce frames in, real refusals out. Time stands still but for `advance`.
Each step is one method and leaves one line in `trace`. What is checked, at every step:

- a batch lands in the log at most once, behind all earlier ones of its producer and partition that have not been
  reported as failed to the application before;
- what a client takes for acknowledged is in the log;
- librdkafka is not told 45 for the batch that is next (it dies of that), and nobody is fenced;
- a process lets no more ids pass than its tokens allow (while quotas stay as they are).

Requests that the gateway handed on have reached their broker before a leader moves: a leader that moves away
while a first batch is on the wire loses it without any gateway, too (KAFKA-15591), and that is not ours to judge.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, SIZE_PREFIX_BYTES
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.quota.admission import Admission
from pidgate.quota.held_beginnings import WORDS, HeldBeginnings
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.state import Answer, PendingDecision
from pidgate.quota.verdicts import Session
from tests.simulator.clients.batches import ModelViolation, State
from tests.unit.gateway.model.broker import ModelBroker
from tests.unit.gateway.model.clients import Batch, Producer
from tests.unit.gateway.model.exchange import Exchange, Teller
from tests.unit.gateway.model.state_owner import HOLD_MS, Asked, Kind, StateOwner
from tests.unit.gateway.model.wire import (
    BY_ID,
    NAMED,
    NOT_LEADER,
    TOPIC,
    TOPIC_ID,
    Outcome,
    produce_frame,
    read_answer,
)

USER: Final = "alice"
REQUEST_TIMEOUT_MS: Final = 60_000
"""The longest of any client (librdkafka); Java's is 30 s."""

RECONNECT_MS: Final = 50
"""A client's back-off before it connects again."""

AdmissionFactory = Callable[[Quotas, int], Admission]


def seed() -> int:
    """Where a process would draw at random: always the same, so that a schedule is its own proof."""
    return 12345


def real_admission(quotas: Quotas, now_ms: int) -> Admission:
    """The code under test as it is; a mutant is made by another factory."""
    return Admission(quotas, seed, now_ms)


def _state_of(admission: Admission) -> ProducerIdQuota:
    state = admission.access.state
    assert isinstance(state, ProducerIdQuota)
    return state


@dataclass(slots=True)
class Sent:
    """A request on its way: what it holds, as it was numbered when it was sent."""

    correlation_id: int
    batches: list[tuple[Batch, int, int]]
    """The batch, its epoch and its base sequence."""
    frame: bytes


@dataclass(slots=True, eq=False)
class Channel:
    """One client connection through the gateway to one node."""

    producer: Producer
    node: int
    process: int
    version: int
    connection_id: int
    conversation: Conversation
    sent: dict[int, Sent] = field(default_factory=dict)
    """Not answered to the client yet, by correlation id."""
    to_broker: deque[Sent] = field(default_factory=deque)
    from_broker: deque[tuple[int, list[Outcome]]] = field(default_factory=deque)
    to_client: deque[tuple[int, list[Outcome]]] = field(default_factory=deque)
    next_correlation_id: int = 1
    asked: PendingDecision | None = None
    """The question that was put last."""

    def holds(self, frame: bytes) -> bool:
        """Whether the gateway holds this request."""
        return any(request.buf == frame for request in self.conversation.held)


def _waits_for_time(channel: Channel) -> bool:
    """Something is held, and it is a mute that holds it."""
    return bool(channel.conversation.held) and not channel.conversation.awaits_decision


class World:
    """`route[node]` is the process that stands before that broker."""

    def __init__(
        self,
        quotas: Quotas,
        producers: Iterable[Producer],
        *,
        partitions: int = 2,
        route: tuple[int, ...] = (0, 0),
        admission: AdmissionFactory = real_admission,
        topic: bytes = TOPIC,
        topic_id: bytes = TOPIC_ID,
        exchange: Exchange | None = None,
        has_state_owner: bool = False,
    ) -> None:
        """`exchange`: processes tell each other what they decide; None: each knows only itself.

        `has_state_owner`: the processes are workers, and ask one state that none of them has.
        """
        self.exchange = exchange
        self.now_ms = 1_000_000
        self.topic, self.topic_id = topic, topic_id
        self.quotas = quotas
        self.route = route
        self.producers = list(producers)
        self.broker = ModelBroker()
        self.leader = [partition % len(route) for partition in range(partitions)]
        self.trace: list[str] = []
        self.channels: dict[tuple[str, int], Channel] = {}
        self.taken: list[tuple[Sent, list[Outcome]]] = []
        """What the brokers were handed and answered, in order, for playing it again to a real one."""
        self._reconnect_at_ms: dict[tuple[str, int], int] = {}
        self._connections = 0
        self._rogue_ids = 100_000
        self._rogues: list[tuple[int, int]] = []
        self._admission = admission
        self._began_ms = self.now_ms
        self._admitted: list[set[int]] = [set() for _ in range(max(route) + 1)]
        """Ids that each process let pass; counted until quotas change or a process restarts."""
        self._counts_admitted = quotas.mode is Mode.ENFORCE
        self.state_owner: StateOwner | None = None
        self.held_beginnings: HeldBeginnings | None = None
        if has_state_owner:
            self.held_beginnings = HeldBeginnings(memoryview(mmap.mmap(-1, 8 * WORDS)).cast("q"))
            self.state_owner = StateOwner(_state_of(admission(quotas, self.now_ms)))
        self.processes = [self._started() for _ in range(max(route) + 1)]
        for number, process in enumerate(self.processes):
            self._attach(process, number)

    def _started(self) -> Admission:
        admission = self._admission(self.quotas, self.now_ms)
        admission.sticky.topics.learn(self.topic, self.topic_id)
        admission.held_beginnings = self.held_beginnings
        return admission

    def _attach(self, process: Admission, number: int) -> None:
        if self.state_owner is not None:
            self.state_owner.attach(process, number, self.quotas, self.now_ms)

    def note(self, line: str) -> None:
        self.trace.append(f"{self.now_ms - 1_000_000:>6} ms  {line}")

    def story(self) -> str:
        """The schedule, one line a step."""
        return "\n".join(self.trace)

    # ---- clients ---------------------------------------------------------------------------------------

    def sendable(self, producer: Producer, node: int) -> list[int]:
        """Partitions of which the producer may send a batch to that node now."""
        if not producer.may_send_to(node):
            return []
        if self._reconnect_at_ms.get((producer.name, node), 0) > self.now_ms:
            return []
        return [
            partition
            for partition, leader in enumerate(self.leader)
            if leader == node and self._next_of(producer, partition) is not None
        ]

    def _next_of(self, producer: Producer, partition: int) -> Batch | None:
        node = self.leader[partition]
        elsewhere = any(
            batch.partition == partition and channel.node != node
            for channel in self.channels.values()
            if channel.producer is producer
            for sent in channel.sent.values()
            for batch, _, _ in sent.batches
        )
        return producer.next_of(partition, leader_moved=elsewhere)

    def send(self, producer: Producer, node: int, partitions: Iterable[int]) -> None:
        """The producer sends one request with the next batch of each of these partitions; the gateway reads it."""
        channel = self._channel(producer, node)
        batches: list[tuple[Batch, int, int]] = []
        for partition in list(partitions)[: producer.partitions_per_request]:
            batch = self._next_of(producer, partition)
            if batch is not None:
                producer.taken(batch)
                batches.append((batch, batch.epoch, batch.base_sequence))
        if not batches:
            return
        sent = self._framed(channel, batches)
        channel.sent[sent.correlation_id] = sent
        producer.in_flight[node] = producer.in_flight.get(node, 0) + 1
        conversation = channel.conversation
        step = conversation.request(sent.frame, SIZE_PREFIX_BYTES, len(sent.frame), self.now_ms)
        outcome = "closed" if step is CLOSE else "refused"
        if step is FORWARD:
            outcome = "forwarded"
            self._hand_on(channel, sent)
        elif conversation.held and conversation.held[-1].buf == sent.frame:
            outcome = "held"
        what = ", ".join(f"{batch.partition}:{epoch}/{sequence}" for batch, epoch, sequence in batches)
        self.note(f"{producer.name} sends {what} to node {node}: {outcome}")
        if step is CLOSE:
            self.cut(channel, by=f"the gateway ({conversation.close_reason})")
        else:
            self._ask(channel)
            self._flush(channel)

    def _framed(self, channel: Channel, batches: list[tuple[Batch, int, int]]) -> Sent:
        producer, correlation_id = channel.producer, channel.next_correlation_id
        channel.next_correlation_id += 1
        numbered = tuple(
            (
                batch.partition,
                producer.producer_id,
                epoch,
                sequence,
                batch.records,
                b"%s|%d|%d" % (producer.name.encode(), batch.partition, batch.number),
            )
            for batch, epoch, sequence in batches
        )
        frame = produce_frame(
            channel.version,
            correlation_id,
            producer.name,
            numbered,
            topic=self.topic,
            topic_id=self.topic_id,
        )
        return Sent(correlation_id, batches, frame)

    def read(self, channel: Channel) -> None:
        """The client reads its next answer."""
        correlation_id, outcomes = channel.to_client.popleft()
        expected = next(iter(channel.sent))
        if correlation_id != expected:
            raise ModelViolation(f"answer {correlation_id} before that of request {expected}")
        sent = channel.sent.pop(correlation_id)
        producer = channel.producer
        producer.in_flight[channel.node] -= 1
        errors = dict(outcomes)
        self.note(f"{producer.name} reads from node {channel.node}: {errors}")
        if list(errors) != [batch.partition for batch, _, _ in sent.batches]:
            raise ModelViolation(f"answer for partitions {list(errors)}, not for those of the request")
        for batch, _, _ in sent.batches:
            producer.answered(batch, errors[batch.partition])
        self._check_acknowledged(producer)

    def cut(self, channel: Channel, *, by: str = "the network") -> None:
        """The connection ends, with everything that has not been read yet."""
        self.note(f"connection of {channel.producer.name} to node {channel.node} is cut by {by}")
        key = (channel.producer.name, channel.node)
        del self.channels[key]
        self._reconnect_at_ms[key] = self.now_ms + RECONNECT_MS
        channel.conversation.drop_held()
        self.processes[channel.process].connection_closed(channel.connection_id, self.now_ms)
        producer = channel.producer
        producer.in_flight[channel.node] = 0
        cut_off = [batch for sent in channel.sent.values() for batch, _, _ in sent.batches]
        producer.cut_off(cut_off)

    def expire(self, producer: Producer, partition: int) -> None:
        """Delivery time-out of the lowest batch of a partition."""
        if producer.expire(partition):
            self.note(f"{producer.name} gives up the first batch of partition {partition}")

    # ---- gateway ---------------------------------------------------------------------------------------

    def _channel(self, producer: Producer, node: int) -> Channel:
        key = (producer.name, node)
        if key not in self.channels:
            self._connections += 1
            process = self.route[node]
            self.channels[key] = Channel(
                producer=producer,
                node=node,
                process=process,
                version=BY_ID if node % 2 else NAMED,
                connection_id=self._connections,
                conversation=self._conversation(process, producer.name, f"10.0.0.{self._connections % 3}"),
            )
        return self.channels[key]

    def _conversation(self, process: int, client_id: str, address: str) -> Conversation:
        session = Session(user=USER, client_id=client_id, address=address, connection_id=self._connections)
        conversation = Conversation(self.processes[process], session)
        if self.exchange is not None:
            conversation.recorder = Teller(self.exchange, process)  # type: ignore[assignment]
        return conversation

    def _hand_on(self, channel: Channel, sent: Sent) -> None:
        channel.to_broker.append(sent)
        self._count_admitted(channel.process, channel.producer.producer_id)

    def _count_admitted(self, process: int, producer_id: int) -> None:
        if not self._counts_admitted:
            return
        ids = self._admitted[process]
        if self.exchange is not None and any(producer_id in others for others in self._admitted):
            return  # Paid for where it came first; the others were told.
        if self.state_owner is not None:
            ids = self._admitted[0]
        ids.add(producer_id)
        settings = self.quotas.producer_ids
        rate_milli = self.quotas.default.producer_ids_rate_milli or 0
        elapsed_windows = Fraction(self.now_ms - self._began_ms, settings.window_ms)
        if len(ids) > Fraction(rate_milli, 1000) * (settings.burst + elapsed_windows) + 1:
            raise ModelViolation(f"process {process} has let {len(ids)} ids pass, more than its tokens")

    def _flush(self, channel: Channel) -> None:
        for answer in channel.conversation.out:
            correlation_id, outcomes, _ = read_answer(answer, channel.version)
            channel.to_client.append((correlation_id, outcomes))
        channel.conversation.out.clear()

    def answer(self, channel: Channel) -> None:
        """The gateway passes the broker's next answer."""
        correlation_id, outcomes = channel.from_broker.popleft()
        channel.conversation.expect(correlation_id)
        sticky = self.processes[channel.process].sticky
        for partition, error_code in outcomes:
            if error_code:
                sticky.not_taken(USER, channel.producer.producer_id, self.topic, partition)
        channel.to_client.append((correlation_id, outcomes))
        channel.conversation.answered()
        self._flush(channel)
        self.note(f"the gateway passes an answer of node {channel.node} to {channel.producer.name}")

    def advance(self, duration_ms: int) -> None:
        """Time passes; mutes end in their order, and clients cut connections that have not answered in time."""
        self.note(f"{duration_ms} ms pass")
        if duration_ms > REQUEST_TIMEOUT_MS:
            waiting = [channel for channel in self.channels.values() if channel.sent]
            self._advance(REQUEST_TIMEOUT_MS)
            duration_ms -= REQUEST_TIMEOUT_MS
            for channel in waiting:
                if channel in self.channels.values() and channel.sent:
                    self.cut(channel, by="the request time-out")
        self._advance(duration_ms)

    def _advance(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while True:
            due = self._next_due_ms()
            self.now_ms = until_ms if due is None else min(until_ms, max(due, self.now_ms))
            if self.exchange is not None:
                self.exchange.deliver(self.processes, self.now_ms)
            while self._deliver_owner(until_ms=self.now_ms - HOLD_MS):
                pass
            for admission in self.processes:
                admission.sweep(self.now_ms)
            if due is None or due > until_ms:
                return
            for channel in list(self.channels.values()):
                if _waits_for_time(channel) and channel.conversation.muted_until_ms <= self.now_ms:
                    self._release(channel)

    def _next_due_ms(self) -> int | None:
        """When a mute ends behind which something is held, or a decision arrives at the others."""
        arrival_ms = None if self.exchange is None else self.exchange.next_ms()
        mute_end_ms = self.next_mute_end_ms(holding=True)
        owner_ms = None if self.state_owner is None else self.state_owner.due_ms()
        return min((at for at in (arrival_ms, mute_end_ms, owner_ms) if at is not None), default=None)

    def next_mute_end_ms(self, *, holding: bool) -> int | None:
        """When the next mute ends, of the channels that hold something or of all that are muted."""
        return min(
            (
                channel.conversation.muted_until_ms
                for channel in self.channels.values()
                if _waits_for_time(channel)
                or (not holding and channel.conversation.muted_until_ms > self.now_ms)
            ),
            default=None,
        )

    def _release(self, channel: Channel) -> None:
        frames, must_close = channel.conversation.release(self.now_ms)
        by_frame = {sent.frame: sent for sent in channel.sent.values()}
        for frame in frames:
            self._hand_on(channel, by_frame[bytes(frame)])
        self.note(f"the mute of {channel.producer.name} at node {channel.node} ends: {len(frames)} forwarded")
        if must_close:
            # As the gateway does: what it has forwarded is written, then the socket closes.
            while channel.to_broker:
                self.append(channel)
            self.cut(channel, by=f"the gateway ({channel.conversation.close_reason})")
        else:
            self._ask(channel)
            self._flush(channel)

    # ---- the state owner -------------------------------------------------------------------------------

    def _ask(self, channel: Channel) -> None:
        """What the conversation wants to know is put to the state owner, once."""
        conversation, owner = channel.conversation, self.state_owner
        if owner is None:
            return
        if conversation.pending is not None and conversation.pending is not channel.asked:
            channel.asked = conversation.pending
            owner.asked.append(Asked(channel.process, channel.asked, channel))
        owner.asked += [Asked(channel.process, passed, channel) for passed in conversation.passed]
        conversation.passed.clear()

    def decide(self) -> None:
        """The state owner answers its next question."""
        if self.state_owner is not None and self.state_owner.asked:
            asked = self.state_owner.asked[0]
            self.state_owner.decide(self.now_ms)
            self.note(f"the state owner answers worker {asked.worker}")

    def arrive(self, worker: int) -> None:
        """A worker takes the next message of the state owner."""
        if self.state_owner is None or not self.state_owner.sent[worker]:
            return
        message = self.state_owner.sent[worker].popleft()
        self.note(f"worker {worker} takes {message.kind.name}")
        admission = self.processes[worker]
        if message.kind is Kind.QUOTAS:
            admission.set_quotas(message.body, self.now_ms)
        elif message.kind is Kind.REFUSED:
            user, producer_id = message.body
            admission.sticky.refused_elsewhere(user, producer_id, self.now_ms)
        else:
            asked, answer = message.body
            self._decided(asked, answer)

    def _decided(self, asked: Asked, answer: Answer) -> None:
        asked.pending.answer = answer
        channel: Channel = asked.asker
        if asked.pending.question.passed:
            channel.conversation.counted(asked.pending)
        elif channel in self.channels.values() and channel.conversation.pending is asked.pending:
            self._release(channel)

    def restart_state_owner(self) -> None:
        """The state owner dies and comes back with what it had published; what waits for it passes."""
        if self.state_owner is None:
            return
        self.note("the state owner restarts")
        self._counts_admitted = False
        gone = self.state_owner
        waiting = [*gone.asked]
        waiting += [message.body[0] for sent in gone.sent for message in sent if message.kind is Kind.ANSWER]
        self.state_owner = StateOwner(gone.state)
        for number, process in enumerate(self.processes):
            self._attach(process, number)
        for asked in waiting:
            admission = self.processes[asked.worker]
            self._decided(asked, admission.access.failed_open(asked.pending.question, self.now_ms))

    def _deliver_owner(self, *, until_ms: int | None = None) -> bool:
        """Questions are decided and answers arrive: all, or those under way since before `until_ms`."""
        moved = False
        owner = self.state_owner
        while owner is not None and owner.asked:
            if until_ms is not None and owner.asked[0].pending.asked_ms > until_ms:
                break
            self.decide()
            moved = True
        for worker, sent in enumerate(owner.sent if owner is not None else ()):
            while sent and (until_ms is None or sent[0].at_ms <= until_ms):
                self.arrive(worker)
                moved = True
        return moved

    # ---- brokers ---------------------------------------------------------------------------------------

    def append(self, channel: Channel) -> None:
        """The broker takes the next request that the gateway has handed on."""
        sent = channel.to_broker.popleft()
        outcomes: list[Outcome] = []
        for batch, epoch, sequence in sent.batches:
            error_code = NOT_LEADER
            if self.leader[batch.partition] == channel.node:
                error_code = self._append(channel.producer, batch, epoch, sequence)
            outcomes.append((batch.partition, error_code))
        self.note(f"node {channel.node} takes a request of {channel.producer.name}: {dict(outcomes)}")
        self.taken.append((sent, outcomes))
        channel.from_broker.append((sent.correlation_id, outcomes))

    def _append(self, producer: Producer, batch: Batch, epoch: int, sequence: int) -> int:
        error_code, is_new = self.broker.append(
            batch.partition, producer.producer_id, epoch, sequence, batch.records, batch.number
        )
        if not is_new:
            return error_code
        log = self._logged(producer, batch.partition)
        if log.count(batch.number) > 1:
            raise ModelViolation(f"{producer.name}: {batch} is in the log twice")
        if log[-1] != max(log):
            raise ModelViolation(f"{producer.name}: {batch} is in the log behind a later one")
        for earlier in producer.partitions[batch.partition].batches[: batch.number]:
            if earlier.state is not State.FAILED and earlier.number not in log:
                raise ModelViolation(f"{producer.name}: {batch} is in the log, {earlier} before it is not")
        return error_code

    def _logged(self, producer: Producer, partition: int) -> list[int]:
        log = self.broker.log.get(partition, [])
        return [number for producer_id, number in log if producer_id == producer.producer_id]

    def _check_acknowledged(self, producer: Producer) -> None:
        for partition, view in enumerate(producer.partitions):
            log = self._logged(producer, partition)
            for batch in view.batches:
                if batch.state is State.ACKED and batch.number not in log:
                    raise ModelViolation(
                        f"{producer.name} believes {batch} acknowledged; it is not in the log"
                    )

    # ---- what else happens -----------------------------------------------------------------------------

    def may_move(self, partition: int, node: int) -> bool:
        """Not back to a node at which a client still waits for the answer to what it was not the leader for."""
        return self.leader[partition] != node and not any(
            batch.partition == partition and not channel.holds(sent.frame)
            for channel in self.channels.values()
            if channel.node == node
            for sent in channel.sent.values()
            for batch, _, _ in sent.batches
        )

    def move(self, partition: int, node: int) -> None:
        """The partition gets another leader, and every client learns of it."""
        for channel in self.channels.values():
            while channel.to_broker:
                self.append(channel)
        self.note(f"partition {partition} moves from node {self.leader[partition]} to node {node}")
        self.leader[partition] = node

    def restart(self, process: int) -> None:
        """A gateway process dies and comes back: connections, refusals and quota state are gone."""
        self.note(f"process {process} restarts")
        for channel in list(self.channels.values()):
            if channel.process == process:
                self.cut(channel, by="the restart")
        self._rogues = [rogue for rogue in self._rogues if rogue[0] != process]
        self.processes[process] = self._started()
        self._attach(self.processes[process], process)
        if self.exchange is not None:
            self.exchange.restart(process, self.processes[process], self.now_ms)
        self._counts_admitted = False

    def set_quotas(self, quotas: Quotas, words: str) -> None:
        """Other quotas at run time, in all processes. What they have told each other before has arrived."""
        if self.exchange is not None:
            self.exchange.deliver(self.processes, self.now_ms, at_once=True)
        self.note(f"quotas: {words}")
        self.quotas = quotas
        self._counts_admitted = False
        if self.state_owner is not None:
            self.state_owner.set_quotas(quotas, self.now_ms)
            return
        for admission in self.processes:
            admission.set_quotas(quotas, self.now_ms)

    def change_quotas(self, words: str, **changes: object) -> None:
        self.set_quotas(replace(self.quotas, **changes), words)  # type: ignore[arg-type]

    def cut_topic(self) -> None:
        """Processes hear no more of each other."""
        if self.exchange is not None:
            self.note("the topic is cut")
            self.exchange.is_cut = True

    def heal_topic(self) -> None:
        """All that was told meanwhile arrives, after the usual time."""
        if self.exchange is not None:
            self.note("the topic heals")
            self.exchange.is_cut = False

    def rogue(self, process: int, *, stays: bool = False) -> None:
        """Another producer of the same user takes a token or is refused; it hangs on or crashes."""
        self._rogue_ids += 1
        self._connections += 1
        conversation = self._conversation(process, "rogue", "10.9.9.9")
        batch = (0, self._rogue_ids, 0, 0, 1, b"x")
        frame = produce_frame(NAMED, 1, "rogue", (batch,))
        passed = conversation.request(frame, SIZE_PREFIX_BYTES, len(frame), self.now_ms) is FORWARD
        pending = conversation.pending
        if self.state_owner is not None and pending is not None:
            pending.answer = self.state_owner.answer(process, pending, self.now_ms)
            passed = bool(conversation.release(self.now_ms)[0])
        if self.state_owner is not None:
            for asked in conversation.passed:
                self.state_owner.answer(process, asked, self.now_ms)
        if passed:
            self._count_admitted(process, self._rogue_ids)
        self.note(f"a rogue at process {process}: {'admitted' if passed else 'refused'}")
        if stays:
            self._rogues.append((process, self._connections))
        else:
            self.processes[process].connection_closed(self._connections, self.now_ms)

    def rogues_leave(self) -> None:
        """The other producers are gone."""
        for process, connection_id in self._rogues:
            self.processes[process].connection_closed(connection_id, self.now_ms)
        self._rogues.clear()

    # ---- to the end ------------------------------------------------------------------------------------

    def drain_bound_ms(self) -> int:
        """How long it may take from now until everything is answered, if nothing else happens.

        For each open producer and process one token and one longest throttle, since its client comes back at
        the end of its mute only; ids that gave up are dropped from the queue; a debt of one token; and for each
        batch a few of the 100 ms steps (first sight, sticky, reconnecting after a close).
        """
        settings = self.quotas.producer_ids
        rate_milli = self.quotas.default.producer_ids_rate_milli or 0
        token_ms = -(-settings.window_ms * 1000 // rate_milli) if rate_milli else 0
        ids = sum(not producer.is_done for producer in self.producers) * len(self.processes)
        batches = sum(len(view.open_batches()) for producer in self.producers for view in producer.partitions)
        given_up_ms = settings.max_throttle_ms + 30_000
        steps_ms = 1_500 * (batches + len(self.leader))
        return given_up_ms + token_ms * (ids + 2) + settings.max_throttle_ms * (ids + 8) + steps_ms

    def drain(self) -> int:
        """Everything on its way arrives, everybody sends what is left. Returns how long it took, in ms.

        Raises ModelViolation when it takes longer than `drain_bound_ms`.
        """
        self.rogues_leave()
        self.heal_topic()
        self.note("from here on everything runs to its end")
        began_ms, bound_ms = self.now_ms, self.drain_bound_ms()
        while not all(producer.is_done for producer in self.producers):
            if self._deliver_all() or self._send_all():
                continue
            self._pass_time()
            if self.now_ms - began_ms > bound_ms:
                raise ModelViolation(f"not drained after {bound_ms} ms")
        self._deliver_all()
        return self.now_ms - began_ms

    def _deliver_all(self) -> bool:
        moved = self._deliver_owner()
        for channel in list(self.channels.values()):
            while channel.to_broker:
                self.append(channel)
                moved = True
            while channel.from_broker:
                self.answer(channel)
                moved = True
            while channel.to_client:
                self.read(channel)
                moved = True
        return moved

    def _send_all(self) -> bool:
        moved = False
        for producer in self.producers:
            for node in range(len(self.route)):
                while partitions := self.sendable(producer, node):
                    self.send(producer, node, partitions)
                    moved = True
        return moved

    def _pass_time(self) -> None:
        waits = [at for at in self._reconnect_at_ms.values() if at > self.now_ms]
        mute_end = self.next_mute_end_ms(holding=True)
        if mute_end is not None:
            waits.append(mute_end)
        self.advance(max(1, min(waits) - self.now_ms) if waits else 100)
