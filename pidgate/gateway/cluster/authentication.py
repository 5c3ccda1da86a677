"""The need of a login: whether clients of a listener have to authenticate before anything else. PURE.

As the configuration says, or as a broker shows it when it is asked for a SaslHandshake: where there is no
authentication it answers ILLEGAL_SASL_STATE (34).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pidgate.protocol.errors import ErrorCode

READABLE_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
"""Mechanisms whose names can be read, as a rule; all others have an entity of their own in the quotas."""


class Authentication:
    """The need of a login on one or more listeners. `required` None: it is unknown."""

    __slots__ = ("on_learnt", "required")

    def __init__(self, required: bool | None = None) -> None:
        self.required = required
        self.on_learnt: Callable[[Sequence[str]], None] = _nobody_to_notify
        """Called with the mechanisms that the brokers offer; none where no login is required."""

    def learn(self, error_code: int, mechanisms: Sequence[str]) -> None:
        """Learn from a broker's answer to SaslHandshake."""
        self.required = error_code != ErrorCode.ILLEGAL_SASL_STATE
        self.on_learnt(mechanisms if self.required else ())


def _nobody_to_notify(_mechanisms: Sequence[str]) -> None:
    pass
