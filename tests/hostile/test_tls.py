"""Attacks on TLS itself: handshakes that are never finished, or that are none, on a listener that others use."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.hostile.attack import Place
from tests.hostile.site import Site, running_site
from tests.support.raw import address_of
from tests.support.rules import rule
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

CONNECTIONS = 600
HELLO = bytes.fromhex("16030102000100 01fc0303")
"""The beginning of a ClientHello of 512 bytes."""


def nothing(_number: int) -> bytes:
    return b""


def beginning(number: int) -> bytes:
    return HELLO + bytes(number % 400)


def kafka(_number: int) -> bytes:
    return bytes.fromhex("00000014 0012 0003 00000001 0001 78 00 0278 0278 00") + bytes(40)


def garbage(number: int) -> bytes:
    return b"\x16\x03\x01\x40\x00" + bytes([number % 256]) * 0x4000


@pytest.fixture(scope="module")
def tls_site(sasl_cluster: Cluster) -> Iterator[Site]:
    with running_site(sasl_cluster, Place(tls=True)) as site:
        yield site


@rule("Connections count from their acceptance; TLS handshakes in progress are bounded.", "connections")
@pytest.mark.parametrize(
    "first",
    [nothing, *(pytest.param(one, marks=pytest.mark.nightly) for one in (beginning, kafka, garbage))],
)
def test_handshakes_that_never_end_keep_nobody_out(tls_site: Site, first: Callable[[int], bytes]) -> None:
    """600 connections at once, and again whenever one is closed; an honest user goes on, and another comes."""
    with ExitStack() as stack, tls_site.under_attack(log_lines=4):
        flood = [_connected(tls_site, stack) for _ in range(CONNECTIONS)]
        for number, one in enumerate(flood):
            with suppress(OSError):
                one.sendall(first(number))
        began_s = time.monotonic()
        with tls_site.connect("alice"):
            pass
        assert time.monotonic() - began_s < 15
    metrics = tls_site.gateway.metrics()
    assert metrics.value("pidgate_connections_closed_total", cause="error") == 0
    if first is nothing:
        assert metrics.value("pidgate_connections_limited_total", limit="handshake") > 0


def _connected(site: Site, stack: ExitStack) -> socket.socket:
    one = socket.create_connection(address_of(site.gateway.bootstrap_servers), timeout=20)
    stack.callback(one.close)
    return one
