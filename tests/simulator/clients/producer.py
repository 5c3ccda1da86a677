"""The model producer: batches in, Produce requests out, the ends of batches to the application.

Every family of real clients is this one producer with a row of traits (traits.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from functools import partial
from random import Random
from typing import Any

from pidgate.load.plan import Address
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Batch, State, Transaction, Wait
from tests.simulator.clients.cluster import ClusterClient
from tests.simulator.clients.identity import ProducerIdentity
from tests.simulator.clients.lane import Lane
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import Bump, Expiry, Lost, Traits
from tests.simulator.clients.turns import NEVER, Trace
from tests.support.frames import BY_ID, produce_frame

_UNCERTAIN = (errors.NETWORK, errors.TIMED_OUT, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_FATAL = (errors.CLUSTER_FORBIDDEN, errors.TRANSACTION_FORBIDDEN, errors.FENCED)
_LOST = (errors.OUT_OF_ORDER, errors.UNKNOWN_PRODUCER_ID)
_SCAN_S = 1.0
_LATE_S = 0.1
"""What a request still gets whose batch is about to expire."""
_NO_LEADER = (-1, -1)

Taken = list[tuple[Lane, Batch, int]]
"""The batches of a request, each with its weight among those in flight."""


class ModelProducer(ClusterClient):
    """An idempotent or transactional producer."""

    def __init__(
        self, traits: Traits, name: str, settings: Settings, random: Random, trace: Trace | None = None
    ) -> None:
        super().__init__(traits, name, settings, random, trace)
        self.transactional_id = settings.transactional_id
        self._padding = b"|" + b"." * settings.padding_bytes if settings.padding_bytes else b""
        self.transaction: Transaction | None = None
        self.open: dict[Batch, None] = {}
        """Batches whose end the application does not know yet, in the order of sending."""
        self.lanes: dict[int, Lane] = {}
        self.to_renumber: set[Lane] = set()
        """Partitions that the next bump of the epoch renumbers."""
        self.id = ProducerIdentity(self)
        self._numbers: dict[int, int] = {}
        self._produce_nodes: dict[int, Node] = {}
        self._fast: set[int] = set()
        """Nodes that have answered a Produce."""
        self._first: dict[int, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._began_s = self.now_s

    @property
    def is_stuck(self) -> bool:
        """Whether the id is lost: nothing is sent, and the application is told nothing. A real client's fault."""
        return self.id.is_lost and bool(self.open)

    # ---- what a schedule does with it ------------------------------------------------------------------

    async def start(self) -> str:
        """Begin. A transactional producer waits for its id; returns why it has none, or an empty string."""
        self.wake()
        return await self.id.start()

    def send(self, partition: int, records: int = 1) -> Batch:
        """The application sends one more batch; look at what is returned for its end."""
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        value = b"%s|%d|%d%s" % (self.name.encode(), partition, number, self._padding)
        batch = Batch(self.name, partition, number, records, value, self.now_s)
        if self.transaction is not None:
            batch.transaction = self.transaction.number
            self.transaction.batches.append(batch)
        self.open[batch] = None
        why_not = "closed" if self.is_over else self.told.fatal or self.id.refuses_to_send()
        if why_not:
            self.failed(batch, why_not)
        else:
            lane = self.lanes.get(partition)
            if lane is None:
                lane = self.lanes[partition] = Lane(partition)
            lane.batches.append(batch)
            self.id.add_partition(lane)
            self.wake()
        return batch

    async def begin(self) -> str:
        """Begin a transaction. Returns why it cannot, or an empty string; so do `commit` and `abort`."""
        return await self.id.begin()

    async def commit(self) -> str:
        return await self.id.end(commit=True)

    async def abort(self) -> str:
        return await self.id.end(commit=False)

    async def flush(self) -> None:
        """Return when the application knows the end of all that it has sent."""
        wait = self.begin_wait("flush")
        for batch in list(self.open):
            await batch.wait()
        wait.ended_s = self.now_s

    async def close(self, timeout_s: float = NEVER) -> None:
        """Send what is left, then close the connections; what is not done within `timeout_s` fails."""
        wait = self.begin_wait("close")
        try:
            async with asyncio.timeout(None if timeout_s == NEVER else timeout_s):
                await self.flush()
                await self.id.end_on_close()
        except TimeoutError:
            self.fail_all("closed")
        self.hang_up(at_once=False)
        wait.ended_s = self.now_s

    def crash(self) -> None:
        """Nothing more is sent, and the application is told nothing any more."""
        self.hang_up(at_once=True)

    def hang_up(self, *, at_once: bool) -> None:
        super().hang_up(at_once=at_once)
        for task in self._tasks:
            task.cancel()
        for node in self._produce_nodes.values():
            self.drop(node, at_once=at_once)

    # ---- one turn --------------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        self.serve_metadata(now_s)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()
        if self.told.fatal:
            for batch in list(self.open):
                # Of librdkafka's, batches in flight get their own end.
                if batch.state is not State.IN_FLIGHT or self.traits.expiry is not Expiry.QUEUED_ONLY:
                    self.failed(batch, self.told.fatal)
        if self.told.fatal or self.id.is_lost:
            return
        self._expire(now_s)
        self._purge_aborted()
        self._resolve()
        self.id.serve()
        if not self.id.is_usable:
            return
        by_node: dict[int, list[Lane]] = {}
        for partition, lane in self.lanes.items():
            if partition in self.leaders:
                by_node.setdefault(self.leaders[partition][0], []).append(lane)
            elif lane.batches:
                self.request_metadata()
        for node_id in sorted(by_node):
            while self._send_to(self._produce_node(node_id), by_node[node_id], now_s):
                pass

    def _produce_node(self, node_id: int) -> Node:
        known = self.nodes[node_id]
        if not self.traits.has_produce_connection:
            return known
        node = self._produce_nodes.get(node_id)
        if node is None or node.address != known.address:
            node = self._produce_nodes[node_id] = Node(node_id, known.address)
            self._fast.discard(node_id)
        return node

    def _expire(self, now_s: float) -> None:
        """Fail batches whose time is over."""
        how, found = self.traits.expiry, []
        delivery_s, is_scan = self.t.delivery_s, how is Expiry.QUEUED_ONLY
        for batch in self.open:
            due_s = batch.queued_s + delivery_s
            if is_scan:  # once a second
                due_s = self._began_s + _SCAN_S * -(-(due_s - self._began_s) // _SCAN_S)
            if due_s > now_s:
                self.wake_at(due_s)
                break
            if not is_scan or batch.state is not State.IN_FLIGHT:
                found.append(batch)
            else:
                self.wake_at(now_s + _SCAN_S)
        for batch in found:
            lane = self.lanes[batch.partition]
            self.failed(batch, "timed out")
            if how is Expiry.BUMPS and batch.attempts:
                lane.unresolved = max(lane.unresolved or 0, batch.base_sequence + batch.records)
        if found and how is Expiry.QUEUED_ONLY:
            self.id.bump()
        elif how is Expiry.LOSES_THE_ID and any(batch.attempts for batch in found):
            self.id.lose()

    def _purge_aborted(self) -> None:
        """Fail what is not in flight of a transaction that is aborted."""
        if not self.id.is_aborting and not self.id.error:
            return
        keeps = self.traits.keeps_sent_on_abort
        for lane in self.lanes.values():
            if keeps or not lane.in_flight:
                for batch in lane.purge(keeps_numbered=keeps):
                    self.failed(batch, self.id.error or "aborted")

    def _resolve(self) -> None:
        """Bump the epoch if the broker lacks a batch that has expired."""
        for lane in self.lanes.values():
            if lane.unresolved is not None and not lane.has_numbered:
                lane.unresolved = None
                if lane.acked_to != lane.next_sequence:
                    self.id.bump(lane)

    # ---- Produce ---------------------------------------------------------------------------------------

    def _send_to(self, node: Node, lanes: list[Lane], now_s: float) -> bool:
        """Send one more request to a node, if there may be one."""
        traits, node_id = self.traits, node.node_id
        first = self._first[node_id] = self._first.get(node_id, -1) + 1
        at = first % len(lanes)
        ready = list(self._ready(lanes[at:] + lanes[:at], node_id, now_s))
        if not ready:
            return False
        if not node.is_up:
            self.connect(node, now_s)
            return False
        if node.throttled_until_s > now_s:
            self.wake_at(node.throttled_until_s)
            return False
        most = 1 if traits.is_slow_at_first and node_id not in self._fast else traits.requests_in_flight
        if node.in_flight >= most:
            return False
        taken: Taken = []
        keeps_old = not traits.drains_before_retry
        for lane, batch in ready[:1] if traits.has_one_batch_per_request else ready:
            weight = batch.records if traits.counts_records else 1
            lane.send(batch, self.id.held, node_id, weight, keeps_old=keeps_old)
            taken.append((lane, batch, weight))
        self._produce(node, taken)
        return True

    def _ready(self, lanes: list[Lane], node_id: int, now_s: float) -> Iterator[tuple[Lane, Batch]]:
        for lane in lanes:
            batch = lane.next_batch()
            if batch is None or not self._may_leave(lane, batch, node_id):
                continue
            ready_s = batch.retry_at_s
            if batch.sent_s < 0 and batch is lane.batches[-1]:
                ready_s = batch.queued_s + self.t.linger_s
            if self.traits.retries_at_once_at_new_leader and self._has_new_leader(batch):
                ready_s = now_s
            if ready_s > now_s:
                self.wake_at(ready_s)
            else:
                yield lane, batch

    def _may_leave(self, lane: Lane, batch: Batch, node_id: int) -> bool:
        """Whether what is in flight of the partition allows a batch to leave for a node."""
        traits = self.traits
        if lane.needs_leaders or not self.id.may_send(lane):
            return False
        if traits.drains_before_new_leader and lane.in_flight_at not in (None, node_id):
            return False
        if lane.is_draining and lane.in_flight:
            return False
        lane.is_draining = False
        most = 1 if traits.is_slow_at_first and not lane.succeeded else traits.batches_in_flight
        if lane.in_flight >= most:
            return False
        if traits.drains_before_retry:
            return True
        if batch.base_sequence >= 0:
            return batch is lane.batches[0]
        return lane.unresolved is None and (lane.identity == self.id.held or not lane.has_numbered)

    def _has_new_leader(self, batch: Batch) -> bool:
        """Whether the batch was not tried yet at the leader that is known now."""
        leader_epoch = self.leaders[batch.partition][1]
        if leader_epoch > batch.leader_epoch:
            batch.leader_epoch, batch.attempts_at_leader = leader_epoch, batch.attempts
        return batch.attempts > 0 and batch.attempts == batch.attempts_at_leader

    def _produce(self, node: Node, taken: Taken) -> None:
        """Send one request with these batches."""
        connection = node.connection
        assert connection is not None
        newest = (
            self.versions[frames.PRODUCE] if self.topic_id else min(self.versions[frames.PRODUCE], BY_ID - 1)
        )
        version = node.speaks(frames.PRODUCE, newest)
        correlation_id = connection.next_correlation_id()
        frame = produce_frame(
            version,
            correlation_id,
            self.name,
            tuple(
                (
                    batch.partition,
                    batch.producer_id,
                    batch.epoch,
                    batch.base_sequence,
                    batch.records,
                    batch.value,
                )
                for _, batch, _ in taken
            ),
            topic=self.topic.encode(),
            topic_id=self.topic_id,
            transactional_id=None if self.transactional_id is None else self.transactional_id.encode(),
        )
        now_s = self.now_s
        for _, batch, _ in taken:
            if batch.sent_s < 0:
                batch.sent_s = now_s
        if self.is_traced:
            what = ", ".join(f"{one.partition}:{one.epoch}/{one.base_sequence}" for _, one, _ in taken)
            self.note(f"sends {what} to {node.node_id}")
        left_s = min(batch.queued_s for _, batch, _ in taken) + self.t.delivery_s - now_s
        timeout_s = min(self.t.request_s, max(left_s, _LATE_S)) if self.traits.counts_records else None
        connection.send(correlation_id, frame, partial(self._answered, node, taken, version), timeout_s)

    def _answered(self, node: Node, taken: Taken, version: int, answer: bytes | None) -> None:
        """A request is over: an answer, or the end of its connection."""
        by_partition = {lane.partition: (lane, batch) for lane, batch, _ in taken}
        for lane, _, weight in taken:
            lane.landed(weight)
        if answer is None:
            for lane, batch in by_partition.values():
                self._done(
                    node, lane, batch, frames.Outcome(lane.partition, errors.NETWORK, -1, -1, _NO_LEADER)
                )
        else:
            self._fast.add(node.node_id)
            outcomes, throttle_ms, endpoints = frames.read_produce(answer, version)
            if self.is_traced:
                what = {outcome.partition: outcome.error_code for outcome in outcomes}
                self.note(f"reads {what} from {node.node_id}, throttle {throttle_ms}")
            self.throttled(node, throttle_ms)
            for outcome in outcomes:
                if self.traits.learns_leader_from_answer:
                    self._learn_from_answer(outcome, endpoints)
                self._done(node, *by_partition[outcome.partition], outcome)
            if self.traits.reconnects and not node.in_flight:
                self.drop(node)
        self.wake()

    def _learn_from_answer(self, outcome: frames.Outcome, endpoints: dict[int, Address]) -> None:
        node_id, leader_epoch = outcome.leader
        if node_id < 0 or leader_epoch < 0:
            return
        if node_id in endpoints:
            self.node_at(node_id, endpoints[node_id])
        if node_id in self.nodes:
            self.learn_leader(outcome.partition, outcome.leader)

    # ---- the end of a batch's try ----------------------------------------------------------------------

    def _done(self, node: Node, lane: Lane, batch: Batch, outcome: frames.Outcome) -> None:
        """One batch of a request has its outcome."""
        traits, code = self.traits, outcome.error_code
        is_ignored = traits.rewinds and (not lane.batches or lane.batches[0] is not batch)
        if code in _UNCERTAIN or (is_ignored and code == 0):
            batch.is_uncertain = True
        if is_ignored:
            return
        if code in (0, errors.DUPLICATE):
            lane.acknowledge(batch, outcome.base_offset)
            if traits.acknowledges_earlier:
                self._acknowledge_before(lane, batch)
            if not batch.is_done:
                self.acked(batch, outcome.base_offset if code == 0 else -1)
            return
        lane.succeeded = False
        if code in errors.INVALID_METADATA:
            self.request_metadata()
        if batch.is_done:
            return
        if self._is_tried_again(lane, batch, outcome):
            self._try_again(node, lane, batch, is_cut=code == errors.NETWORK)
        else:
            self._fail(lane, batch, code)

    def _acknowledge_before(self, lane: Lane, batch: Batch) -> None:
        """Acknowledge what waits for another try before a batch that was written. No one asks if it was refused."""
        for earlier in lane.batches[: lane.batches.index(batch)] if batch in lane.batches else []:
            if earlier.state is State.RETRY:
                self.acked(earlier)

    def _is_tried_again(self, lane: Lane, batch: Batch, outcome: frames.Outcome) -> bool:
        """Whether a batch is sent again after an error; bumps the epoch or gives up the producer, if that is due."""
        traits, code = self.traits, outcome.error_code
        if batch.queued_s + self.t.delivery_s <= self.now_s:
            return False
        if traits.fails_stale and (batch.producer_id, batch.epoch) != self.id.held:
            return False
        if code not in _LOST:
            is_lost = (
                code == errors.STALE_EPOCH and traits.lost is Lost.BUMPS_AND_REWINDS and not self.id.is_on
            )
            if is_lost:
                self._bump_if_current(batch)
            return is_lost or code in errors.RETRIABLE
        # The broker has let go of the id, and not lost anything: the partition begins again.
        by_retention = code == errors.UNKNOWN_PRODUCER_ID and -1 < lane.last_offset < outcome.log_start_offset
        if (
            by_retention
            and traits.lost in (Lost.FAILS_AND_ASKS, Lost.RETRIES_AND_BUMPS_IF_NEXT)
            and self.id.is_on
        ):
            lane.renumber(self.id.held)
            return True
        return self._LOST[traits.lost](self, lane, batch, outcome)

    def _retries_and_bumps_if_next(self, lane: Lane, batch: Batch, outcome: frames.Outcome) -> bool:
        if outcome.error_code == errors.UNKNOWN_PRODUCER_ID:
            is_next = outcome.log_start_offset >= 0 and not batch.is_reset
        else:
            is_next = not batch.is_reset and batch.base_sequence == lane.acked_to
            if lane.unresolved is not None:
                is_next = batch.base_sequence == lane.unresolved
        if is_next and not self.id.is_on:
            self.id.bump(lane)
        return not is_next or not self.id.is_on

    def _bumps_or_dies(self, lane: Lane, batch: Batch, outcome: frames.Outcome) -> bool:
        is_next = batch.base_sequence <= lane.acked_to
        if outcome.error_code == errors.OUT_OF_ORDER:
            is_fatal = is_next
        else:
            is_fatal = not self.id.is_on and (batch.attempts > 0 or not is_next)
        if is_fatal:
            what = f"{outcome.error_code} for sequence {batch.base_sequence}, next is {lane.acked_to}"
            self.is_of_no_use(what)
            return False
        self.id.bump()
        return not self.id.is_on

    def _fails_and_asks(self, _lane: Lane, batch: Batch, _outcome: frames.Outcome) -> bool:
        self._bump_if_current(batch)
        return False

    def _bumps_and_rewinds(self, _lane: Lane, batch: Batch, _outcome: frames.Outcome) -> bool:
        self._bump_if_current(batch)
        return not self.id.is_on

    _LOST = {  # noqa: RUF012 - never changed
        Lost.RETRIES_AND_BUMPS_IF_NEXT: _retries_and_bumps_if_next,
        Lost.BUMPS_OR_DIES: _bumps_or_dies,
        Lost.FAILS_AND_ASKS: _fails_and_asks,
        Lost.BUMPS_AND_REWINDS: _bumps_and_rewinds,
    }

    def _bump_if_current(self, batch: Batch) -> None:
        if (batch.producer_id, batch.epoch) == self.id.held:
            self.id.bump()

    def _try_again(self, node: Node, lane: Lane, batch: Batch, *, is_cut: bool) -> None:
        traits = self.traits
        batch.attempts += 1
        batch.state = State.RETRY
        if traits.rewinds:
            lane.rewind()
        lane.is_draining = traits.drains_before_retry
        batch.retry_at_s = self.now_s + self.backoff_s(
            self.t.retry_backoff_s, self.t.retry_backoff_max_s, batch.attempts - 1
        )
        if is_cut:
            self.request_metadata()
        elif traits.looks_for_leaders_first:
            batch.retry_at_s = self.now_s
            if self.leaders[lane.partition][0] == node.node_id:
                lane.needs_leaders = True
                self.request_metadata()

    def _fail(self, lane: Lane, batch: Batch, code: int) -> None:
        """A batch fails for good, and what follows from that."""
        traits, words = self.traits, errors.words(code)
        self.failed(batch, words)
        if self.told.fatal:
            return
        if code in _FATAL or (
            code == errors.STALE_EPOCH and traits.lost is Lost.BUMPS_OR_DIES and self.id.is_on
        ):
            self.is_of_no_use(words)
        elif self.id.is_on:
            self.id.needs_epoch = self.id.needs_epoch or not self.id.is_v2
            self.id.abortable(words)
        elif traits.bump is Bump.FOR_SOME_PARTITIONS:
            self.id.bump(lane)
        elif traits.bump is Bump.WHEN_DRAINED:
            self.id.bump()
        elif traits.bump is Bump.BY_REQUEST and code not in (*errors.RETRIABLE, *_LOST, errors.STALE_EPOCH):
            self.is_of_no_use(words)
        if traits.rewinds:
            lane.rewind()
            for behind in lane.purge(keeps_numbered=False):
                self.failed(behind, words)

    # ---- nodes -----------------------------------------------------------------------------------------

    def learn(self, found: frames.Leaders) -> None:
        super().learn(found)
        for lane in self.lanes.values():
            lane.needs_leaders = False

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task that ends with the producer."""
        task = self.loop.create_task(work, context=self.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def any_node(self) -> Node | None:
        """Return a node that can be asked; connect, if there is none."""
        node = self.least_loaded(self.now_s)
        return None if node is None else await self.reach(node)

    async def reach(self, node: Node) -> Node | None:
        """Return the node when it is connected; None if that fails."""
        give_up_s = self.now_s + self.t.connect_s
        while not node.is_up or node.throttled_until_s > self.now_s:
            self.connect(node, self.now_s)
            if (node.connection is None and node.dialling is None) or self.now_s >= give_up_s:
                return None
            if node.is_up:
                await asyncio.sleep(node.throttled_until_s - self.now_s)
            else:
                waiting: asyncio.Future[None] = self.loop.create_future()
                self._waiting.append(waiting)
                await waiting
        return node

    async def ask(self, node: Node, frame: bytes) -> bytes | None:
        """Return the answer; None when the connection ends before."""
        answer: asyncio.Future[bytes | None] = self.loop.create_future()

        def answered(found: bytes | None) -> None:
            if not answer.done():
                answer.set_result(found)

        if node.connection is None:
            return None
        node.connection.ask(frame, answered)
        return await answer

    # ---- what the application is told ------------------------------------------------------------------

    def transaction_began(self) -> None:
        """Note that the application is in a transaction."""
        self.transaction = Transaction(len(self.told.transactions), self.now_s)
        self.told.transactions.append(self.transaction)

    def transaction_ended(self, transaction: Transaction, error: str, *, commit: bool) -> None:
        """Note what the application got when it asked for the end; with an error, it may ask again."""
        transaction.error, transaction.ended_s = error, self.now_s
        if not error:
            transaction.outcome = "committed" if commit else "aborted"
            self.transaction = None

    def acked(self, batch: Batch, offset: int = -1) -> None:
        """It is written, as far as the client knows."""
        self._told(batch, State.ACKED, self.told.acknowledged)
        batch.offset = offset
        if self.told.heard is not None:
            self.told.heard(batch)
        if self.is_traced:
            self.note(f"acked {batch.partition}/{batch.number} at {offset}")

    def failed(self, batch: Batch, error: str) -> None:
        """It will not be sent again."""
        self._told(batch, State.FAILED, self.told.failed)
        batch.error = error
        if self.is_traced:
            self.note(f"failed {batch.partition}/{batch.number}: {error}")

    def _told(self, batch: Batch, state: State, among: list[Batch]) -> None:
        del self.open[batch]
        lane = self.lanes.get(batch.partition)
        if lane is not None and batch in lane.batches:
            lane.batches.remove(batch)
        batch.finish(state, self.now_s)
        among.append(batch)

    def fail_all(self, error: str) -> None:
        """All that is open."""
        for batch in list(self.open):
            self.failed(batch, error)

    def is_of_no_use(self, why: str) -> None:
        """The producer has a fatal error."""
        if not self.told.fatal:
            self.told.fatal = why
            self.note(f"fatal: {why}")
        self.wake()

    def begin_wait(self, kind: str) -> Wait:
        """Note that something begins that takes time."""
        wait = Wait(kind, self.now_s)
        self.told.waits.append(wait)
        return wait
