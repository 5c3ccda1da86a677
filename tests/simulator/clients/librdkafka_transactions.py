"""librdkafka's transactions (`rdkafka_txnmgr.c`): partitions are registered, then EndTxn; version 1 of KIP-890."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulator.clients.batches import State as BatchState
from tests.simulator.clients.batches import Transaction
from tests.simulator.clients.librdkafka_coordinator import CoordinatorRequests, State
from tests.simulator.clients.librdkafka_id import IdState

if TYPE_CHECKING:
    from tests.simulator.clients.toppar import Toppar


class LibrdkafkaTransactions(CoordinatorRequests):
    """Of one producer; one that is not transactional sends as it likes."""

    @property
    def _is_on(self) -> bool:
        return self.client.transactional_id is not None

    # ---- the application -------------------------------------------------------------------------------

    async def init(self) -> str:
        """`rd_kafka_init_transactions`."""
        self.state = State.WAIT_PID
        self.client.id.start(at_once=True)
        wait = self.client.begin_wait("start")
        error = await self._wait_for_call()
        wait.ended_s = self.client.now_s
        return error

    def begin(self) -> str:
        """`rd_kafka_begin_transaction`."""
        client = self.client
        if self.state is not State.READY or client.told.fatal:
            return client.told.fatal or f"in state {self.state.name}"
        self.state, self.error, self.requests = State.IN_TRANSACTION, "", 0
        client.transaction_began()
        return ""

    def refuses_to_send(self) -> str:
        if not self._is_on or self.state is State.IN_TRANSACTION:
            return ""
        return self.error or f"in state {self.state.name}"

    def add_partition(self, toppar: Toppar) -> None:
        """To be registered with the coordinator before its first batch goes."""
        if self._is_on and not toppar.is_registered and toppar.partition not in self.asked:
            self.pending[toppar.partition] = None
            self.register_after(0.0)

    def may_send(self, toppar: Toppar) -> bool:
        """`rd_kafka_txn_may_send_msg` and `rd_kafka_txn_toppar_may_send_msg`."""
        if not self._is_on:
            return True
        return self.state in (State.IN_TRANSACTION, State.BEGIN_COMMIT) and toppar.is_registered

    async def commit(self) -> str:
        """`rd_kafka_commit_transaction`."""
        return await self._complete(is_commit=True)

    async def abort(self) -> str:
        """`rd_kafka_abort_transaction`."""
        return await self._complete(is_commit=False)

    async def _complete(self, *, is_commit: bool) -> str:
        client, transaction = self.client, self.client.transaction
        allowed: tuple[State, ...] = (State.IN_TRANSACTION, State.BEGIN_COMMIT, State.COMMITTING)
        if not is_commit:
            allowed = (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.BEGIN_ABORT, State.ABORTING)
        if transaction is None or self.state not in allowed or client.told.fatal:
            return client.told.fatal or self.error or f"in state {self.state.name}"
        wait = client.begin_wait("commit" if is_commit else "abort")
        try:
            async with asyncio.timeout(client.t.max_block_s):
                error = await (self._commit(transaction) if is_commit else self._abort())
        except TimeoutError:
            error = "timeout"
        wait.ended_s = client.now_s
        client.transaction_ended(transaction, error, commit=is_commit)
        if not error:
            self._completed()
        return error

    async def _commit(self, transaction: Transaction) -> str:
        if self.state is State.IN_TRANSACTION:
            self.state = State.BEGIN_COMMIT
        await self._flush()
        if self.state is State.BEGIN_COMMIT:
            if any(batch.state is BatchState.FAILED for batch in transaction.batches):
                self.abortable("messages failed delivery")
            elif not self.requests:
                return ""
            else:
                self.state = State.COMMITTING
                self.end(is_commit=True)
        if self.state is State.ABORTABLE_ERROR:
            return self.error
        return await self._wait_for_call()

    async def _abort(self) -> str:
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self.state = State.BEGIN_ABORT
            self.pending.clear()
        self.client.purge("aborted", is_abort=True)
        await self._flush()
        if self.state is State.BEGIN_ABORT:
            if not self.requests and not self.needs_epoch:
                return ""
            if not self.requests:
                self.client.id.bump(abort_first=False)
            elif self.client.id.state in (IdState.ASSIGNED, IdState.WAIT_TXN_ABORT):
                self.state = State.ABORTING
                self.end(is_commit=False)
        return await self._wait_for_call()

    async def _flush(self) -> None:
        for batch in list(self.client.open):
            await batch.wait()

    async def _wait_for_call(self) -> str:
        client = self.client
        if client.told.fatal:
            return client.told.fatal
        if self.call is None or self.call.done():
            self.call = client.loop.create_future()
        try:
            async with asyncio.timeout(client.t.max_block_s):
                return await asyncio.shield(self.call)
        except TimeoutError:
            return "timeout"

    def _completed(self) -> None:
        self.state, self.needs_epoch, self.requests = State.READY, False, 0
        self.pending.clear()
        for toppar in self.client.toppars.values():
            toppar.is_registered = False

    # ---- what others report ----------------------------------------------------------------------------

    def id_changed(self, state: IdState) -> None:
        """`rd_kafka_txn_idemp_state_change`."""
        if state is IdState.FATAL:
            self.answer_call(self.client.told.fatal)
        elif state is IdState.ASSIGNED:
            if self.state is State.WAIT_PID:
                self.state = State.READY
                self.answer_call()
            elif self.state in (State.BEGIN_ABORT, State.ABORTING):
                self.answer_call()

    def abortable(self, why: str, *, needs_epoch: bool = False) -> None:
        """`rd_kafka_txn_set_abortable_error`: all that waits fails, and the application has to abort."""
        client = self.client
        self.needs_epoch = self.needs_epoch or needs_epoch
        if client.told.fatal or self.error:
            return
        self.error = why
        if self.state not in (State.BEGIN_ABORT, State.ABORTING):
            self.state = State.ABORTABLE_ERROR
            self.answer_call(why)
        client.purge("aborted", is_abort=True)
        client.wake()
