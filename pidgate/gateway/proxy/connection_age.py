"""The deadlines of one connection: silence, a login, the gateway's own session at the broker. PURE."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgeLimits:
    """Limits on silence, on the arrival of a frame, and on a login."""

    idle_ms: int
    frame_ms: int = 60_000
    login_ms: int = 30_000


class ConnectionAge:
    """The age of one connection. `overdue` is called about once a second."""

    __slots__ = ("_session_ends_ms", "heard_ms", "opened_ms", "was_heard")

    def __init__(self, now_ms: int) -> None:
        self.opened_ms = now_ms
        self.heard_ms = 0
        """When bytes arrived last, to a second."""
        self._session_ends_ms = 0
        """Expiry of the gateway's own session at the broker; 0: none."""
        self.was_heard = True
        """Bytes arrived from either side since the last check. Set on every read."""

    def logged_in(self, session_lifetime_ms: int, now_ms: int) -> None:
        """Schedule the connection's end before the gateway's broker session expires (KIP-368); 0: never.

        The client reconnects and is logged in again. Re-authenticating on the open connection would delay its
        requests.
        """
        if session_lifetime_ms:
            self._session_ends_ms = now_ms + session_lifetime_ms * 3 // 4

    def overdue(self, now_ms: int, limits: AgeLimits, *, awaits_login: bool) -> tuple[str, str] | None:
        """Return the close cause and the reason of a deadline that has passed. None: there is none."""
        if self.was_heard:
            self.was_heard = False
            self.heard_ms = now_ms
        elif self.heard_ms < now_ms - limits.idle_ms:
            return "idle", "nothing was sent or received for limits.idle"
        if self._session_ends_ms and now_ms > self._session_ends_ms:
            self._session_ends_ms = 0
            return "session", "the gateway's own session at the broker ends"
        if awaits_login and now_ms - self.opened_ms > limits.login_ms:
            return "login", "it did not log in in time"
        return None
