"""franz-go's producer id and transactions (`producer.go`, `txn.go`), version 1 and 2 of KIP-890."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.node import Node

if TYPE_CHECKING:
    from tests.simulator.clients.franz_go import FranzGoProducer
    from tests.simulator.clients.franz_go_buffers import RecBuf

_RELOAD = "reload"
_LAST_EPOCH = 32_766
_CONCURRENT_S = 0.02
_BEFORE_V2 = {frames.PRODUCE: 11, frames.END_TXN: 4}
_LOST = -1


class FranzGoId:
    """The id, which is asked for when it is needed, and the transaction."""

    def __init__(self, client: FranzGoProducer) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.error = _RELOAD
        """Empty: the id is good; reload: it has to be loaded or bumped; else why it is of no use."""
        self.in_transaction = False
        self.may_produce = False
        self.is_v2 = False
        self.is_aborting = False
        self._client = client
        self._loading: asyncio.Task[None] | None = None
        self._coordinator: int | None = None
        self._unconfirmed = False
        self._produced = False

    @property
    def held(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def is_on(self) -> bool:
        return self._client.transactional_id is not None

    def refuses_to_send(self) -> str:
        return "" if not self.is_on or self.may_produce else "not in a transaction"

    def usable(self) -> bool:
        """`producerID`: whether there is an id to send with; loads or bumps it, if that is what it takes."""
        client = self._client
        if self.error == _RELOAD and self._loading is None:
            if not self.is_on and self.producer_id >= 0 and self.epoch < _LAST_EPOCH:
                self.epoch += 1
                self.error = ""
                client.reset_sequences()
                if client.is_traced:
                    client.note(f"bumps its epoch: {self.epoch}")
            else:
                self._loading = client.spawn(self._load())
        self._produced = self._produced or not self.error
        return not self.error

    def fail(self, held: tuple[int, int], error: str = _RELOAD) -> None:
        """`failProducerID`."""
        if held == self.held and not self.error:
            self.error = error
            self._client.wake()

    async def _load(self) -> None:
        """`doInitProducerID`, as often as it takes."""
        client, tries = self._client, 0
        while True:
            code, version, frame = await self._ask_coordinator(frames.INIT_PRODUCER_ID, self._init_frame)
            if code == 0:
                answer = messages.init_producer_id_answer(frame, 0, len(frame), version)
                code = answer.error_code
                if code == 0:
                    self.producer_id, self.epoch, self.error = answer.producer_id, answer.producer_epoch, ""
                    if client.is_traced:
                        client.note(f"is {self.held}")
                    client.reset_sequences()
                    break
            if code != _LOST and code not in errors.RETRIABLE:
                self.error = errors.words(code)
                client.fail_all(self.error)
                break
            tries += 1
            await asyncio.sleep(
                _CONCURRENT_S if code == errors.CONCURRENT_TRANSACTIONS else client.retry_s(tries)
            )
        self._loading = None
        client.wake()

    def _init_frame(self, version: int) -> bytes:
        client = self._client
        timeout_ms = int(client.t.transaction_s * 1000) if self.is_on else 0
        return frames.init_producer_id(version, client.name, client.transactional_id, timeout_ms, self.held)

    async def _good_id(self) -> str:
        self.usable()
        if self._loading is not None:
            await asyncio.shield(self._loading)
        return self.error

    # ---- transactions ----------------------------------------------------------------------------------

    async def begin(self) -> str:
        """`BeginTransaction`."""
        client = self._client
        if self.in_transaction:
            return "already in a transaction"
        if self.error not in ("", _RELOAD):
            if not self._is_recoverable():
                return self.error
            self.error = _RELOAD
        wait = client.begin_wait("start")
        error = await self._good_id()
        wait.ended_s = client.now_s
        if error:
            return error
        self._update_version()
        self.in_transaction = self.may_produce = True
        self._produced = False
        client.transaction_began()
        return ""

    def _is_recoverable(self) -> bool:
        """`maybeRecoverProducerID`."""
        words = errors.words
        if self.is_v2:
            return self.error in (words(errors.UNKNOWN_PRODUCER_ID), words(errors.TRANSACTION_ABORTABLE))
        kip_360 = (errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING, errors.STALE_EPOCH)
        return self.error in [words(code) for code in kip_360]

    async def end(self, *, commit: bool) -> str:
        """Flush, or abort what is buffered; then `EndTransaction`."""
        client, transaction = self._client, self._client.transaction
        if transaction is None or not self.in_transaction:
            return "not in a transaction"
        wait = client.begin_wait("commit" if commit else "abort")
        self.is_aborting = not commit
        client.wake()
        for batch in list(client.open):
            await batch.wait()
        self.is_aborting = False
        error = await self._end(commit=commit)
        client.transaction_ended(transaction, error, commit=commit)
        wait.ended_s = client.now_s
        return error

    async def _end(self, *, commit: bool) -> str:
        client = self._client
        self.in_transaction = self.may_produce = False
        unconfirmed, self._unconfirmed = self._unconfirmed, False
        added = [buffer for buffer in client.buffers.values() if buffer.is_added]
        for buffer in added:
            buffer.is_added = False
        if not added:
            if not self.is_v2 or not self._produced:
                return ""
            commit = False
        if self.error not in ("", _RELOAD):
            if not commit and self._is_recoverable():
                self.error = _RELOAD
                return ""
            return self._not_ended(added, self.error)
        reloaded = self.error == _RELOAD
        error = await self._good_id()
        if error:
            return self._not_ended(added, error)
        if unconfirmed or reloaded:
            # The new epoch has aborted what was open.
            return "a commit whose outcome is not known" if commit else ""
        held = self.held
        code, version, frame = await self._end_txn(commit=commit)
        if code:
            definite = code != _LOST and code not in errors.RETRIABLE
            self.fail(held, errors.words(code) if definite else _RELOAD)
            self._unconfirmed = True
            if client.transaction is not None and commit and not definite:
                client.transaction.may_be_committed = True
            return self._not_ended(added, "connection lost" if code == _LOST else errors.words(code))
        answer = messages.end_txn_answer(frame, 0, len(frame), version)
        if answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            client.reset_sequences()
        return ""

    def _not_ended(self, added: list[RecBuf], error: str) -> str:
        """The application is expected to try to abort."""
        for buffer in self._client.buffers.values():
            buffer.is_added = buffer.is_added or buffer in added
        self.in_transaction = True
        return error

    async def _end_txn(self, *, commit: bool) -> tuple[int, int, bytes]:
        client = self._client
        assert client.transactional_id is not None
        name, transactional_id = client.name, client.transactional_id
        while True:
            code, version, frame = await self._ask_coordinator(
                frames.END_TXN,
                lambda version: frames.end_txn(version, name, transactional_id, self.held, commit=commit),
            )
            if code == 0:
                code = messages.end_txn_answer(frame, 0, len(frame), version).error_code
            if code != errors.CONCURRENT_TRANSACTIONS:
                return code, version, frame
            await asyncio.sleep(_CONCURRENT_S)

    async def add_partitions(self, partitions: tuple[int, ...]) -> dict[int, int]:
        """`issueTxnReq`: error codes by partition, -1 where there was no answer."""
        client = self._client
        assert client.transactional_id is not None
        name, transactional_id = client.name, client.transactional_id
        code, version, frame = await self._ask_coordinator(
            frames.ADD_PARTITIONS,
            lambda version: frames.add_partitions(
                version, name, transactional_id, self.held, client.topic, partitions
            ),
        )
        if code:
            return dict.fromkeys(partitions, code)
        return frames.read_add_partitions(frame, version)

    def _update_version(self) -> None:
        client = self._client
        connections = [node.connection for node in client.nodes.values() if node.connection is not None]
        self.is_v2 = self.is_v2 or any(one.offered.transaction_version >= 2 for one in connections)
        for api_key, newest in _BEFORE_V2.items():
            client.versions[api_key] = (
                client.spoken[api_key] if self.is_v2 else min(client.spoken[api_key], newest)
            )

    # ---- the coordinator -------------------------------------------------------------------------------

    async def _ask_coordinator(self, api_key: int, build: Callable[[int], bytes]) -> tuple[int, int, bytes]:
        """(error, version, answer) of a request to the coordinator, or to any node without transactions.

        Error -1: the connection was lost, three times. Moved coordinators are looked up again.
        """
        client = self._client
        for tries in range(1, 4):
            node = await self._node_to_ask()
            frame = None
            if node is not None:
                version = node.speaks(api_key, client.versions[api_key])
                frame = await client.ask(node, build(version))
            if frame is not None:
                if self.is_on and _moved(api_key, frame, version):
                    self._coordinator = None
                else:
                    return 0, version, frame
            await asyncio.sleep(client.retry_s(tries))
        return _LOST, 0, b""

    async def _node_to_ask(self) -> Node | None:
        client = self._client
        if not self.is_on:
            return await client.any_node()
        if self._coordinator is None:
            node = await client.any_node()
            if node is None:
                return None
            assert client.transactional_id is not None
            version = node.speaks(frames.FIND_COORDINATOR, client.versions[frames.FIND_COORDINATOR])
            answer = await client.ask(
                node, frames.find_coordinator(version, client.name, client.transactional_id)
            )
            found = None if answer is None else frames.read_coordinator(answer, version)
            if found is None or found.error_code:
                return None
            self._coordinator = found.node_id
            client.node_at(found.node_id, (found.host, found.port))
        return await client.reach(client.nodes[self._coordinator])


def _moved(api_key: int, frame: bytes, version: int) -> bool:
    if api_key == frames.INIT_PRODUCER_ID:
        codes = [messages.init_producer_id_answer(frame, 0, len(frame), version).error_code]
    elif api_key == frames.END_TXN:
        codes = [messages.end_txn_answer(frame, 0, len(frame), version).error_code]
    else:
        codes = list(frames.read_add_partitions(frame, version).values())
    return any(
        code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR, errors.LOAD_IN_PROGRESS) for code in codes
    )
