"""A fleet comes back while strangers hold on to a gateway: all are in within a minute, and no broker is flooded."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import selectors
import socket
import struct
import time
from contextlib import suppress
from itertools import chain
from multiprocessing.sharedctypes import Synchronized
from typing import Final

import pytest

from pidgate.gateway.proxy.connection_quotas import STRANGERS
from pidgate.load.plan import Address
from tests.hostile.attack import Place
from tests.hostile.site import running_site
from tests.hostile.test_connections import sockets_of
from tests.support.frames import framed
from tests.support.raw import address_of, request
from tools.sandbox.kafka import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.nightly, pytest.mark.timeout(280)]

HEARTBEAT, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 12, 17, 18, 36
CLIENTS: Final = 5_000
SILENT: Final = 600
FLOODING: Final = 100
AT_ONCE: Final = 50
"""ApiVersions that a flooding connection sends when it is answered."""
USERS: Final = ("alice", "bob")
"""A user leaves as many connections free as it holds."""
FILES: Final = 16_000
"""Two of each connection, in the gateway and in the broker."""
SILENT_SOURCE = "127.0.0.2"
CLOSED_SOURCE, FLOODING_SOURCE = "127.0.0.3", "127.0.0.4"
"""A second ApiVersions closes a connection, which comes again; one of an unknown version does not."""
IN_WITHIN_S: Final = 60.0
PATIENCE_S: Final = 30.0
LONGEST_BACKOFF_S: Final = 1.0
"""Clients' reconnect.backoff.max.ms."""

VERSIONS: Final = request(API_VERSIONS, 3)
TOO_NEW: Final = framed(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff")
HANDSHAKE: Final = request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
BEAT: Final = request(HEARTBEAT, 0, {"group_id": "g", "member_id": "m"})


def connecting(address: Address, source: str) -> socket.socket:
    opened = socket.socket()
    opened.setblocking(False)
    opened.bind((source, 0))
    opened.connect_ex(address)
    return opened


def attack(address: Address, answered: Synchronized[int]) -> None:
    """Hold silent connections and flood over others, from addresses of their own; closed ones come again."""
    with selectors.DefaultSelector() as waits:

        def begin(source: str) -> None:
            # A connection that floods begins when it is connected, and goes on when it is answered.
            events = selectors.EVENT_READ if source == SILENT_SOURCE else selectors.EVENT_WRITE
            waits.register(connecting(address, source), events, source)

        sources = [SILENT_SOURCE] * SILENT + [CLOSED_SOURCE, FLOODING_SOURCE] * (FLOODING // 2)
        for source in sources:
            begin(source)
        while True:
            for key, _ in waits.select():
                found, source = key.fileobj, key.data
                assert isinstance(found, socket.socket)
                try:
                    if key.events == selectors.EVENT_WRITE:
                        waits.modify(found, selectors.EVENT_READ, source)
                    else:
                        data = found.recv(1 << 20)
                        if not data:
                            raise ConnectionResetError
                        answered.value += len(data)
                    with suppress(BlockingIOError):
                        found.send((TOO_NEW if source == FLOODING_SOURCE else VERSIONS) * AT_ONCE)
                except OSError:
                    waits.unregister(found)
                    found.close()
                    begin(source)


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> bytes:
    writer.write(frame)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def come_back(address: Address, user: str) -> asyncio.StreamWriter:
    """Connect, log in and be served, as often as it takes."""
    token = request(SASL_AUTHENTICATE, 1, {"auth_bytes": f"\0{user}\0{user}-secret".encode()})
    backoff_s = 0.05
    while True:
        with suppress(OSError, EOFError):
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(*address)
                try:
                    for frame in (VERSIONS, HANDSHAKE, token, BEAT):
                        await asked(reader, writer, frame)
                except BaseException:
                    writer.transport.abort()
                    raise
                return writer
        await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
        backoff_s = min(LONGEST_BACKOFF_S, 2 * backoff_s)


async def seconds_until_in(address: Address) -> float:
    """Have the fleet come back at once; return how long it takes until the last one is served."""
    began_s = time.monotonic()
    users = chain.from_iterable([user] * (CLIENTS // len(USERS)) for user in USERS)
    writers = await asyncio.gather(*(come_back(address, user) for user in users))
    took_s = time.monotonic() - began_s
    still_open = sum(not writer.transport.is_closing() for writer in writers)
    for writer in writers:
        writer.transport.abort()
    assert still_open == CLIENTS
    return took_s


def test_a_fleet_is_in_within_a_minute_while_strangers_hold_on(sasl_cluster: Cluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"{hard} open files are allowed, and {FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    spawning = multiprocessing.get_context("spawn")
    answered = spawning.Value("q", 0)
    with running_site(sasl_cluster, Place()) as site:
        address = address_of(site.address)
        before = sockets_of(site)
        attacker = spawning.Process(target=attack, args=(address, answered), daemon=True)
        attacker.start()
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while sockets_of(site) - before < 500 or not answered.value:
                assert time.monotonic() < deadline_s, "the strangers did not arrive"
                time.sleep(0.2)
            share = max(soft, FILES) // 2 // STRANGERS
            assert sockets_of(site) - before < 1.2 * share, "strangers hold broker connections"
            flooded_before = answered.value
            took_s = asyncio.run(seconds_until_in(address))
            flooded = answered.value - flooded_before
        finally:
            attacker.kill()
            attacker.join()
        metrics = site.gateway.metrics()
        assert flooded > 200_000, "the flood went on"
        assert metrics.value("pidgate_connections_limited_total", limit="silent") > 0
        print(f"all in after {took_s:.1f} s, {flooded / 1e6:.0f} MB of answers to the flood")
        assert took_s < IN_WITHIN_S
