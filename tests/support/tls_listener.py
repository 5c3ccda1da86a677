"""Listeners of a gateway over TLS, and their clients."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

from tools.sandbox.certificates import Authority, Pair
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.ports import free_block


def add_tls_listener(gateway: GatewayProcess, authority: Authority, node_ids: Iterable[int] = (1,)) -> str:
    """Add a listener beside the plain one of a gateway that is not started; return its address.

    The certificate is the authority's "gateway".
    """
    pair = authority.issue("gateway")
    first = free_block(max(node_ids) + 2)
    gateway.config["listeners"].append(
        {
            "bind": f"127.0.0.1:{first}",
            "advertise": "127.0.0.1",
            "node_ports": {"first": first + 1},
            "tls": {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)},
        }
    )
    return f"127.0.0.1:{first}"


def mutual_tls(authority: Authority) -> dict[str, str]:
    """Return a listener's `tls` that requires a certificate of the authority from its clients."""
    pair = authority.issue("gateway")
    return {
        "cert_file": str(pair.cert_file),
        "key_file": str(pair.key_file),
        "client_auth": "required",
        "client_ca_file": str(authority.ca_file),
    }


def client_tls(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """Return a context of a client that trusts the authority, and shows a certificate if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca_file)
    if pair is not None:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return context
