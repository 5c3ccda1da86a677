"""How a lane passes the answer to a request: Passing in core.h. PURE."""

from __future__ import annotations

from typing import Final

ANSWER_UNREAD: Final = 1
ANSWER_ENDS_IN_TAGS: Final = 2
"""A Fetch answer whose last tags may hold addresses (KIP-951)."""
ANSWER_PLAIN_SUCCESS: Final = 3
"""A Produce answer: it passes if it is a plain success."""
