"""For all unit tests: what a test sees of the log does not depend on which tests ran before it."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def loggers_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A logger that was used once under a configuration would keep it, and no later test could capture its lines."""
    configure = structlog.configure

    def uncached(*args: Any, **settings: Any) -> None:
        configure(*args, **{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", uncached)
    yield
    structlog.reset_defaults()
