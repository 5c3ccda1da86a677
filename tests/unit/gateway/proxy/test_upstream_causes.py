"""Why a broker could not be dialled, and of which causes its address is forgotten."""

from __future__ import annotations

import errno
from socket import gaierror

import pytest

from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.upstream import Upstream, _cause_of
from tests.support.scene import LISTENER, Scene

ADDRESS = ("k2", 9092)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused"),
        (OSError(errno.EMFILE, "Too many open files"), "open_files"),
        (OSError(errno.ENFILE, "Too many open files in system"), "open_files"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "unreachable"),
        (gaierror(-2, "Name or service not known"), "resolve"),
        (ValueError("no port"), "unreachable"),
    ],
)
def test_each_error_has_its_cause(error: Exception, cause: str) -> None:
    assert _cause_of(error) == cause


@pytest.mark.parametrize(
    ("cause", "is_known"), [("refused", False), ("timeout", False), ("login", True), ("open_files", True)]
)
def test_a_broker_is_forgotten_for_its_own_failures_only(cause: str, is_known: bool) -> None:
    """Our want of descriptors says nothing of it: its port would lead to a stand-in afterwards."""
    scene = Scene()
    scene.shared.nodes.learn_node(2, *ADDRESS)
    upstream = Upstream(ConnectionContext(scene.shared, NodePorts(LISTENER), 2, requires_login=False))
    upstream._connect_failed(scene.connect().channel.connection, ADDRESS, cause, "why")
    assert (2 in scene.shared.nodes.known_addresses) is is_known
    assert scene.counters.upstream_failures[cause] == 1
    scene.loop.close()
