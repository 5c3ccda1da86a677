"""A second listener of a gateway, over TLS, beside the plain one."""

from __future__ import annotations

from collections.abc import Iterable

from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.ports import free_block


def add_tls_listener(gateway: GatewayProcess, authority: Authority, node_ids: Iterable[int] = (1,)) -> str:
    """Add it to a gateway that is not started; return its address. The certificate is the authority's "gateway"."""
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
