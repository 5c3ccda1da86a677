"""A connection is told whether a login is required, whenever that is learnt."""

import pytest

from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.protocol.errors import ErrorCode
from tests.support.paper_transport import PaperTransport
from tests.support.scene import LISTENER, Scene, heartbeat

NONE = int(ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("learnt", ["before it is accepted", "before its socket is its own", "later"])
def test_nobody_is_closed_for_want_of_a_login_that_nobody_requires(learnt: str) -> None:
    """With TLS a channel is made when its connection is accepted, and has the socket once the handshake is over."""
    scene = Scene()
    scene.loop.close()
    context = ConnectionContext(scene.shared, NodePorts(LISTENER), None)
    scene.shared.authentication.on_learnt = lambda _: scene.shared.authentication_learnt()
    if learnt == "before it is accepted":
        scene.shared.authentication.learn_requirement(NONE, ())
    channel = ClientChannel(context, lambda *_: None)
    if learnt == "before its socket is its own":
        scene.shared.authentication.learn_requirement(NONE, ())
    client = PaperTransport(channel)
    client.receive(heartbeat(1))
    assert channel.connection.session.held or learnt != "later"
    if learnt == "later":
        scene.shared.authentication.learn_requirement(NONE, ())
    assert not channel.connection.is_gone
    assert not channel.connection.session.held
    assert len(channel.connection.session.context.in_flight) == 1
