"""Whether clients of a listener must authenticate first. PURE.

Configured, or learnt from a broker's response to SaslHandshake: without authentication it is
ILLEGAL_SASL_STATE (34).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pidgate.protocol.errors import ErrorCode


class Authentication:
    """The login requirement of one or more listeners. `required` is None if unknown."""

    __slots__ = ("on_learnt", "required")

    def __init__(self, required: bool | None = None) -> None:
        self.required = required
        self.on_learnt: Callable[[Sequence[str]], None] = _nobody_to_notify
        """Called with the broker's mechanisms; empty if no login is required."""

    def learn_requirement(self, error_code: int, mechanisms: Sequence[str]) -> None:
        """Update from a broker's response to SaslHandshake."""
        self.required = error_code != ErrorCode.ILLEGAL_SASL_STATE
        self.on_learnt(mechanisms if self.required else ())


def _nobody_to_notify(_mechanisms: Sequence[str]) -> None:
    pass
