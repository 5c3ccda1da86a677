"""For all unit tests: a log that no earlier test has set up, and certificates."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tools.sandbox.certificates import Authority, Pair


@pytest.fixture(autouse=True)
def loggers_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A logger that was used once under a configuration would keep it, and no later test could capture its lines."""
    configure = structlog.configure

    def uncached(*args: Any, **settings: Any) -> None:
        configure(*args, **{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", uncached)
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA of the module's own. A test that changes its files makes one for itself."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """A certificate with its key, for the gateway."""
    return authority.issue("gateway")
