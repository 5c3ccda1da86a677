"""A model producer's id and its transactions: InitProducerId, FindCoordinator, AddPartitionsToTxn, EndTxn.

Transactions of version 1 and 2 (KIP-890). Requests to the coordinator are coroutines that try until they have an
answer; traits say what a family does otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import State
from tests.simulator.clients.lane import NO_ID, Identity, Lane
from tests.simulator.clients.node import Node
from tests.simulator.clients.traits import Bump

if TYPE_CHECKING:
    from tests.simulator.clients.producer import ModelProducer

_LAST_EPOCH = 32_766
_CONCURRENT_S = 0.02
_BEFORE_V2 = {frames.PRODUCE: 11, frames.END_TXN: 4}
_FENCED = (errors.STALE_EPOCH, errors.FENCED)
_MOVED = (errors.NO_COORDINATOR, errors.NOT_COORDINATOR)
_NEEDS_EPOCH = (errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING)
_ABORTABLE = (*_NEEDS_EPOCH, errors.TRANSACTION_ABORTABLE)
_UNANSWERED = -1


class _Answer(NamedTuple):
    """What an answer of the coordinator says; `error_code` -1: there was none."""

    error_code: int
    identity: Identity = NO_ID
    codes: dict[int, int] = {}  # noqa: RUF012 - never changed


class ProducerIdentity:
    """The id and epoch in use, whether they may be used now, and the transaction."""

    def __init__(self, client: ModelProducer) -> None:
        self.held = NO_ID
        self.is_lost = False
        """Reset, and no other one is asked for."""
        self.is_v2 = False
        self.is_open = False
        """In a transaction."""
        self.is_aborting = False
        self._no_end_under_way = asyncio.Event()
        self._no_end_under_way.set()
        self.error = ""
        """Why the transaction has to be aborted."""
        self.needs_epoch = False
        """Of a transactional producer: the transaction's end is followed by InitProducerId."""
        self._client = client
        self._wants_bump = False
        self._loading: asyncio.Task[str] | None = None
        self._adding: asyncio.Task[None] | None = None
        self._coordinator: Node | None = None
        self._is_unconfirmed = False
        """An EndTxn has had no answer: the next end is an InitProducerId, which aborts what is open."""

    @property
    def is_on(self) -> bool:
        """Whether the producer is transactional."""
        return self._client.transactional_id is not None

    @property
    def is_usable(self) -> bool:
        """Whether batches may be sent with the id now."""
        return self.held != NO_ID and not self._wants_bump and self._loading is None

    # ---- the id ----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Ask for an id, or bump the epoch, if that is wanted and may be done."""
        client = self._client
        if self.is_lost or self._loading is not None or client.told.fatal:
            return
        if self._wants_bump:
            self._bump()
        elif self.held == NO_ID and not self.is_on and (client.open or not client.traits.asks_id_lazily):
            self._load()
        if self.is_open and self._adding is None and not self.is_v2 and self.is_usable and not self.error:
            new = [lane for lane in client.lanes.values() if lane.batches and not lane.is_added]
            if new:
                self._adding = client.spawn(self._add(new))

    def bump(self, lane: Lane | None = None) -> None:
        """Bump the epoch as soon as that may be done; a transaction has to be aborted before."""
        if self.is_on:
            self.needs_epoch = self.needs_epoch or not self.is_v2
            self.abortable("sequences are lost")
            return
        self._wants_bump = True
        if lane is not None:
            self._client.to_renumber.add(lane)
        self._client.wake()

    def _bump(self) -> None:
        client, how = self._client, self._client.traits.bump
        lanes = client.lanes.values()
        if how is Bump.WHEN_DRAINED and any(lane.in_flight for lane in lanes):
            return
        self._wants_bump = False
        if how is Bump.BY_REQUEST or self.held[1] >= _LAST_EPOCH:
            self._load(self.held if how is Bump.BY_REQUEST else NO_ID)
            return
        self.held = self.held[0], self.held[1] + 1
        if client.is_traced:
            client.note(f"bumps its epoch: {self.held}")
        if how is Bump.FOR_SOME_PARTITIONS:
            for lane in sorted(client.to_renumber, key=lambda lane: lane.partition):
                lane.renumber(self.held)
        client.to_renumber.clear()

    def lose(self) -> None:
        """Reset the id and ask for no other."""
        self.held, self.is_lost = NO_ID, True

    def _load(self, held: Identity = NO_ID) -> asyncio.Task[str]:
        if self._loading is None:
            self._loading = self._client.spawn(self._init(held))
        return self._loading

    async def _init(self, held: Identity) -> str:
        """InitProducerId, until there is an answer that is final. Returns the error."""
        client = self._client
        timeout_ms = int(client.t.transaction_s * 1000) if self.is_on else -1

        def build(version: int) -> bytes:
            return frames.init_producer_id(version, client.name, client.transactional_id, timeout_ms, held)

        while True:
            answer = await self._ask(frames.INIT_PRODUCER_ID, build, _init_answer)
            code = answer.error_code
            if code == 0:
                self.held, self.needs_epoch = answer.identity, False
                if client.is_traced:
                    client.note(f"is {self.held}")
                break
            if code == errors.STALE_EPOCH and held != NO_ID and not self.is_on:
                held = NO_ID
            elif code != _UNANSWERED and code not in errors.RETRIABLE:
                self._give_up(code)
                break
            await self._back_off(code)
        self._loading = None
        client.wake()
        return client.told.fatal

    # ---- the application -------------------------------------------------------------------------------

    async def start(self) -> str:
        """Wait for the id of a transactional producer. Returns why there is none."""
        if not self.is_on or self._client.traits.asks_id_lazily:
            return ""
        return await self._waited("start", self._good_id())

    async def begin(self) -> str:
        """Begin a transaction."""
        client = self._client
        if client.told.fatal or self.is_open:
            return client.told.fatal or "already in a transaction"
        if why := await self._waited("start", self._good_id()) if self.held == NO_ID or self._loading else "":
            return why
        self._update_version()
        self.is_open, self.error = True, ""
        client.transaction_began()
        return ""

    async def end(self, *, commit: bool) -> str:
        """Commit or abort, when the end of every batch is known."""
        client, transaction = self._client, self._client.transaction
        if transaction is None or not self.is_open or client.told.fatal:
            return client.told.fatal or "not in a transaction"
        self._no_end_under_way.clear()
        try:
            error = await self._waited("commit" if commit else "abort", self._end(commit=commit))
        finally:
            self._no_end_under_way.set()
        client.transaction_ended(transaction, error, commit=commit)
        if not error:
            self.is_open = self.is_aborting = False
            self.error = ""
        return error

    async def end_on_close(self) -> None:
        """Let an end under way finish, then abort an open transaction (Java: Sender.run, `isCompleting`)."""
        await self._no_end_under_way.wait()
        if self.is_open and self._client.traits.aborts_on_close:
            await self.end(commit=False)

    def refuses_to_send(self) -> str:
        """Return why the application cannot send now, if so."""
        if not self.is_on or (self.is_open and not self.error and not self.is_aborting):
            return ""
        return self.error or "not in a transaction"

    def abortable(self, why: str) -> None:
        """The application has to abort the transaction."""
        if self.is_open and not self.is_aborting:
            self.error = self.error or why
        self._client.wake()

    def add_partition(self, lane: Lane) -> None:
        """A batch has come. With version 2 its Produce adds the partition."""
        lane.is_added = lane.is_added or (self.is_on and self.is_v2)

    def may_send(self, lane: Lane) -> bool:
        return not self.is_on or lane.is_added

    async def _good_id(self) -> str:
        client = self._client
        if self.held == NO_ID or self.needs_epoch or self._loading is not None:
            return await asyncio.shield(self._load(self.held))
        return client.told.fatal

    async def _waited(self, kind: str, work: Coroutine[Any, Any, str]) -> str:
        client = self._client
        wait = client.begin_wait(kind)
        try:
            async with asyncio.timeout(
                None if client.t.max_block_s == float("inf") else client.t.max_block_s
            ):
                return await work
        except TimeoutError:
            return "timeout"
        finally:
            wait.ended_s = client.now_s

    # ---- the end of a transaction ----------------------------------------------------------------------

    async def _end(self, *, commit: bool) -> str:
        client, transaction = self._client, self._client.transaction
        assert transaction is not None
        self.is_aborting = not commit
        client.wake()
        for batch in list(client.open):
            await batch.wait()
        if self._adding is not None:
            await asyncio.shield(self._adding)
        if client.told.fatal:
            return client.told.fatal
        if commit and any(batch.state is State.FAILED for batch in transaction.batches):
            self.abortable("a batch failed")
        if commit and self.error:
            return self.error
        if self._is_unconfirmed:
            self.needs_epoch = True
        elif any(lane.is_added for lane in client.lanes.values()):
            error = await self._end_txn(commit=commit)
            if error:
                return error
        for lane in client.lanes.values():
            lane.is_added = False
        if self.needs_epoch and (error := await self._good_id()):
            return error
        was_unconfirmed, self._is_unconfirmed = self._is_unconfirmed, False
        # The new epoch has aborted what was open.
        return "a commit whose outcome is not known" if was_unconfirmed and commit else ""

    async def _end_txn(self, *, commit: bool) -> str:
        client = self._client
        transaction, transactional_id = client.transaction, client.transactional_id
        assert transaction is not None
        assert transactional_id is not None

        def build(version: int) -> bytes:
            return frames.end_txn(version, client.name, transactional_id, self.held, commit=commit)

        while True:
            answer = await self._ask(frames.END_TXN, build, _end_answer)
            code = answer.error_code
            if code == _UNANSWERED:
                self._is_unconfirmed = True
                transaction.may_be_committed = transaction.may_be_committed or commit
                return "connection lost"
            if code not in errors.RETRIABLE:
                break
            await self._back_off(code)
        if code in _NEEDS_EPOCH and not commit:
            self.needs_epoch = True
        elif code in _ABORTABLE:
            self.needs_epoch = self.needs_epoch or not self.is_v2
            self.abortable(errors.words(code))
            return errors.words(code)
        elif code:
            return self._give_up(code)
        if answer.identity != NO_ID:
            self.held, self.needs_epoch = answer.identity, False
        return ""

    async def _add(self, lanes: list[Lane]) -> None:
        """AddPartitionsToTxn, until there is an answer that is final."""
        client, transactional_id = self._client, self._client.transactional_id
        assert transactional_id is not None
        partitions = tuple(sorted(lane.partition for lane in lanes))

        def build(version: int) -> bytes:
            return frames.add_partitions(
                version, client.name, transactional_id, self.held, client.topic, partitions
            )

        while True:
            answer = await self._ask(frames.ADD_PARTITIONS, build, _added_answer)
            codes = answer.codes.values()
            code = next((code for code in codes if code), answer.error_code)
            if code == 0:
                for lane in lanes:
                    lane.is_added = True
                break
            if code != _UNANSWERED and code not in errors.RETRIABLE:
                if code in (*_FENCED, errors.TRANSACTION_FORBIDDEN, errors.CLUSTER_FORBIDDEN):
                    self._give_up(code)
                self.needs_epoch = self.needs_epoch or code in _NEEDS_EPOCH
                self.abortable(errors.words(code))
                break
            if self.is_aborting or self.error:
                break
            await self._back_off(code)
        self._adding = None
        client.wake()

    def _give_up(self, code: int) -> str:
        self._client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
        return self._client.told.fatal

    def _update_version(self) -> None:
        """Brokers say which version of transactions the next one may have; without 2, older requests are used."""
        client = self._client
        connections = [node.connection for node in client.nodes.values() if node.connection is not None]
        offered = any(one.offered.transaction_version >= 2 for one in connections)
        # What brokers have offered is kept while none can be reached.
        self.is_v2 = self.is_v2 or (offered and client.spoken[frames.END_TXN] > _BEFORE_V2[frames.END_TXN])
        for api_key, newest in _BEFORE_V2.items():
            client.versions[api_key] = (
                client.spoken[api_key] if self.is_v2 else min(client.spoken[api_key], newest)
            )

    # ---- the coordinator -------------------------------------------------------------------------------

    async def _back_off(self, code: int = 0) -> None:
        is_short = code == errors.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(_CONCURRENT_S if is_short else self._client.t.retry_backoff_s)

    async def _ask(
        self, api_key: int, build: Callable[[int], bytes], read: Callable[[bytes, int], _Answer]
    ) -> _Answer:
        """Return the answer of the coordinator, or of any node where there are no transactions."""
        client, tries = self._client, 0
        while True:
            node = await self._node_to_ask()
            if node is not None:
                version = node.speaks(api_key, client.versions[api_key])
                if client.is_traced:
                    client.note(f"asks {node.node_id}: {frames.NAMES[api_key]} as {self.held}")
                frame = await client.ask(node, build(version))
                answer = _Answer(_UNANSWERED) if frame is None else read(frame, version)
                if answer.error_code != _UNANSWERED and not (self.is_on and _has_moved(answer)):
                    return answer
                self._coordinator = None
            tries += 1
            if tries == client.traits.coordinator_tries:
                return _Answer(_UNANSWERED)
            await self._back_off()

    async def _node_to_ask(self) -> Node | None:
        """Return a node that can be asked, or None if there is none at present."""
        client = self._client
        if self.is_on and self._coordinator is None:
            node = await client.any_node()
            if node is None:
                return None
            assert client.transactional_id is not None
            version = node.speaks(frames.FIND_COORDINATOR, client.versions[frames.FIND_COORDINATOR])
            frame = await client.ask(
                node, frames.find_coordinator(version, client.name, client.transactional_id)
            )
            found = None if frame is None else frames.read_coordinator(frame, version)
            if found is None or found.error_code:
                return None
            self._coordinator = client.node_at(found.node_id, (found.host, found.port))
        if self._coordinator is None:
            return await client.any_node()
        # Metadata may have given the node another address.
        self._coordinator = client.nodes.get(self._coordinator.node_id, self._coordinator)
        node = await client.reach(self._coordinator)
        if node is None:
            self._coordinator = None
        return node


def _has_moved(answer: _Answer) -> bool:
    return any(code in _MOVED for code in (answer.error_code, *answer.codes.values()))


def _init_answer(frame: bytes, version: int) -> _Answer:
    found = messages.init_producer_id_answer(frame, 0, len(frame), version)
    return _Answer(found.error_code, (found.producer_id, found.producer_epoch))


def _end_answer(frame: bytes, version: int) -> _Answer:
    found = messages.end_txn_answer(frame, 0, len(frame), version)
    return _Answer(
        found.error_code, (found.producer_id, found.producer_epoch) if found.producer_id >= 0 else NO_ID
    )


def _added_answer(frame: bytes, version: int) -> _Answer:
    return _Answer(0, codes=frames.read_add_partitions(frame, version))
