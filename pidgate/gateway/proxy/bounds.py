"""Bounds that hold for every cluster, each with its reason; limits.* are the ones an operator sets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one process. Tests lower them; the gateway runs with the defaults."""

    connect_timeout_ms: int = 10_000
    """For a broker to accept a connection: clients give up the same set-up after 10 s (Java's
    socket.connection.setup.timeout.ms)."""
    frame_time_ms: int = 60_000
    """For a frame to arrive: clients give a request up after 30 s (Java) or 60 s (librdkafka)."""
    login_time_ms: int = 30_000
    """To send a first request and to log in: a login is two or three round trips to a broker."""
    connections_per_s: int = 1_000
    """New connections of all users: accepting and dialling that many takes half of a core."""
    tls_handshake_ms: int = 10_000
    """For a client to set up TLS, which it gives up after 10 s itself."""
    tls_handshakes: int = 500
    """Handshakes in progress: a fleet that reconnects over a slow network has about that many."""
