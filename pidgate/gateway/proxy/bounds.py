"""Fixed bounds of a process, each with its reason. Bounds set by an operator are limits.*."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one process. Tests lower them; the gateway uses the defaults."""

    connect_timeout_ms: int = 10_000
    """Time to connect to a broker. Clients give up a connection set-up after the same 10 s (Java's
    socket.connection.setup.timeout.ms)."""
    frame_time_ms: int = 60_000
    """Time for a frame to arrive. Clients time out a request after 30 s (Java) or 60 s (librdkafka)."""
    login_time_ms: int = 30_000
    """Time for the first request and the login. A login takes two or three round trips to a broker."""
    connections_per_s: int = 1_000
    """New connections per second of all users. This many take three quarters of a core (docs/reference/sizing.md)."""
    tls_handshake_ms: int = 10_000
    """Time for a client's TLS handshake. Clients give up after the same 10 s."""
    tls_handshakes: int = 500
    """Handshakes in progress. A fleet that reconnects over a slow network has about this many."""
    broker_check_ms: int = 5_000
    """Time between two questions to each broker whether it answers. /readyz and pidgate_broker_up follow it."""
