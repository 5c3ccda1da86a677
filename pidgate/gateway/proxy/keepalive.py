"""TCP keepalive: it detects a peer that vanished without a FIN, and middleboxes keep idle connections.

AWS NLBs forget a connection that was idle for 350 s, Azure's load balancers after 4 min, and both drop later packets.
Probes are sent more often than that. A peer that answers none counts as gone after two minutes, long before
`limits.idle` (10 min).
"""

from __future__ import annotations

import socket
from typing import Final

IDLE_S: Final = 60
"""Idle time before the first probe: a quarter of the shortest of these limits."""
INTERVAL_S: Final = 10
"""Time between two unanswered probes."""
PROBES: Final = 6
"""Unanswered probes before the connection ends with ETIMEDOUT: a minute outlasts a short outage of the network."""


def keep_alive(opened: socket.socket) -> None:
    """Turn keepalive on. Sockets accepted from a listening socket inherit its options (Linux)."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
