"""Connections of the gateway's own end with their use, however it ends."""

from __future__ import annotations

import asyncio

import pytest

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.cluster.broker_answers import BrokerAnswers
from pidgate.gateway.cluster.nodes import Nodes
from pidgate.gateway.cluster.probe import Probe
from pidgate.protocol import messages
from pidgate.protocol.headers import RequestHead
from tests.support.loopback import HOST, Peer, ScriptedBroker, run, until

TIMEOUT_MS = 10_000


class SilentBroker(ScriptedBroker):
    """Answers all but what `silent_at` names, an api key."""

    def __init__(self, silent_at: int) -> None:
        self.asked = asyncio.Event()

        async def silence(_head: RequestHead, _peer: Peer) -> bytes | None:
            self.asked.set()
            return None

        super().__init__({silent_at: silence})


async def _leaves_a_connection(silent_at: int) -> bool:
    """Whether the broker still has a connection half a second after the probe was cancelled."""
    async with SilentBroker(silent_at) as broker:
        nodes = Nodes([(HOST, broker.port)])
        answers = BrokerAnswers(nodes.resolver, TIMEOUT_MS, monotonic_ms(asyncio.get_running_loop()))
        task = asyncio.ensure_future(Probe(nodes, answers).run())
        await broker.asked.wait()
        task.cancel()
        answers.stop()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(0.5):
                await until(lambda: not broker.connected)
        except TimeoutError:
            return True
        return False


@pytest.mark.parametrize("silent_at", [messages.SASL_HANDSHAKE, messages.METADATA])
def test_a_probe_that_is_cancelled_leaves_no_connection(silent_at: int) -> None:
    async def scenario() -> None:
        assert not await _leaves_a_connection(silent_at)

    run(scenario())
