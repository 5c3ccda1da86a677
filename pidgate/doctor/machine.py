"""Checks of a file and of this machine before the start: names, ports, open files, certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Final

from pidgate import open_files
from pidgate.doctor.findings import Checks, Start, State, failed, warning
from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.config.conflicts import reserved_ports
from pidgate.gateway.config.listening import CannotListen, listening_on
from pidgate.gateway.config.settings import ListenerSettings, Settings
from pidgate.gateway.config.source import dotted
from pidgate.gateway.process.traffic import FILES_OF_PORT, OWN_OPEN_FILES
from pidgate.gateway.tls.checking import unusable, warnings
from pidgate.gateway.tls.contexts import TlsUnusable, pinned_context, server_context
from pidgate.units import WILDCARD_HOSTS, Address

Problem = tuple[State, str, str]
MOST_TRIED: Final = 64
"""Ports of brokers that are tried."""
FEW_CLIENTS: Final = 1_000


def check_machine(checks: Checks, settings: Settings, *, is_running: bool) -> None:
    """Check what needs no broker. `is_running`: the gateway of this file runs here and holds its ports."""
    checks.add("names resolve", Start.NAMES, list(_names(settings)))
    if is_running:
        checks.add("the ports of the file are held by its running gateway", Start.PORTS)
    else:
        checks.add("ports are free", Start.PORTS, list(_ports(settings)))
    checks.add(*_open_files(settings))
    if any(listener.tls for listener in settings.listeners) or settings.cluster.tls or settings.admin.tls:
        checks.add("certificates are usable and name the advertised hosts", Start.TLS, list(_tls(settings)))


def _names(settings: Settings) -> Iterator[Problem]:
    for server in settings.cluster.bootstrap_servers:
        if why := _unresolved(server.host):
            remedy = "correct the name in cluster.bootstrap_servers, or the name service"
            yield failed(f"cluster.bootstrap_servers: {server.host}: {why}", remedy)
    for index, listener in enumerate(settings.listeners):
        host = _advertised(listener)
        if host and (why := _unresolved(host)):
            key = f"listeners[{index}].{'advertise' if listener.sni is None else 'sni'}"
            yield warning(
                f"{key}: {host}: {why}", "clients need this name: they may have another name service"
            )


def _advertised(listener: ListenerSettings) -> str:
    node_id = listener.node_ids[0] if listener.node_ids else listener.only_node or 0
    return NodePorts(listener).advertised_address(node_id)[0]


def _unresolved(host: str) -> str:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _ports(settings: Settings) -> Iterator[Problem]:
    for what, address in _binds(settings):
        try:
            with listening_on(what, address), socket.socket(_family(address.host)) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if settings.reuse_port and what != "admin.bind":
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                tried.bind(address)
                tried.listen(1)
        except CannotListen as error:
            cause, _, remedy = str(error).partition("; ")
            yield failed(f"{what}: {cause}", remedy)


def _binds(settings: Settings) -> Iterator[tuple[str, Address]]:
    yield "admin.bind", settings.admin.bind
    for index, listener in enumerate(settings.listeners):
        yield f"listeners[{index}].bind", listener.bind
        for port in list(reserved_ports(listener))[:MOST_TRIED]:
            yield f"listeners[{index}].node_ports", Address(listener.bind_host, port)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _open_files(settings: Settings) -> tuple[str, str, list[Problem]]:
    allowed = open_files.allow_most()
    ports = sum(len(reserved_ports(listener)) for listener in settings.listeners)
    clients = max(0, (allowed - OWN_OPEN_FILES - FILES_OF_PORT * ports) // 2)
    title = f"{allowed:,} open files are enough for {clients:,} clients at once"
    wanted = settings.limits.connections or FEW_CLIENTS
    if clients >= wanted:
        return title, Start.OPEN_FILES, []
    text = f"{allowed:,} open files of this shell are enough for {clients:,} clients of {wanted:,}"
    remedy = "raise it: ulimit -Hn, or LimitNOFILE= of the unit, which may differ from this shell's"
    problem = failed(text, remedy) if settings.limits.connections else warning(text, remedy)
    return "there are enough open files", Start.OPEN_FILES, [problem]


def _tls(settings: Settings) -> Iterator[Problem]:
    broken = {error.path[:3]: error for error in unusable(settings)}
    for error in broken.values():
        yield failed(f"{dotted(error.path)}: {error.text}", "correct the file, or its path")
    for path, text in warnings(settings):
        cause, _, remedy = text.rpartition("; ")
        yield (failed if "expired" in cause else warning)(f"{dotted(path)}: {cause}", remedy)
    for index, listener in enumerate(settings.listeners):
        host = _advertised(listener)
        if listener.tls is None or host in WILDCARD_HOSTS or ("listeners", index, "tls") in broken:
            continue
        if why := _wrong_name(listener, host):
            text = f"listeners[{index}].tls.cert_file: clients that connect to {host} refuse it: {why}"
            yield failed(
                text, f"issue a certificate with {host} in subjectAltName, or advertise a name that it has"
            )


def _wrong_name(listener: ListenerSettings, host: str) -> str:
    """Return why a client that verifies the name refuses the listener's certificate. Shakes hands in memory."""
    tls = listener.tls
    assert tls is not None
    try:
        server_side, client_side = server_context(tls, ()), pinned_context(tls.cert_file, ())
    except TlsUnusable as error:
        return error.text
    client_side.check_hostname = True
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError:
            return ""
    return ""
