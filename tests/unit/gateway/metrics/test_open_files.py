"""No free descriptor: noticed, counted each second, logged now and then; and what connections may take of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.admin import visits
from pidgate.gateway.config.settings import LimitsSettings
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.open_files import QUIET_MS, OpenFilesWatch, is_exhausted
from pidgate.gateway.process.traffic import OWN_OPEN_FILES, _connection_limits
from pidgate.gateway.proxy.bounds import Bounds


@contextmanager
def open_files_at_most(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def lowest_free() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_one_free_descriptor_is_enough() -> None:
    free = lowest_free()
    with open_files_at_most(free + 1):
        assert not is_exhausted()
    with open_files_at_most(free):
        assert is_exhausted()
    assert lowest_free() == free


def test_each_second_is_counted_and_few_are_logged() -> None:
    counters = Counters()
    watch = OpenFilesWatch(counters)
    with capture_logs() as lines:
        watch.check_limit(0)
        with open_files_at_most(lowest_free()):
            for second in range(25):
                watch.check_limit(second * 1_000)
    assert counters.open_files_exhausted == 25
    assert [line["event"] for line in lines] == ["open_files_exhausted"] * 3
    assert [line["suppressed_count"] for line in lines] == [0, QUIET_MS // 1_000 - 1, QUIET_MS // 1_000 - 1]
    assert all("ulimit -n" in line["remedy"] for line in lines)


@pytest.mark.parametrize(
    ("written", "total"),
    [(None, 100), (50, 50), (1_000, 100)],
    ids=["by default half of the files", "fewer", "more than there are files for"],
)
def test_connections_never_take_more_files_than_there_are(written: int | None, total: int) -> None:
    with open_files_at_most(OWN_OPEN_FILES + 300):
        limits = _connection_limits(LimitsSettings(connections=written), Bounds(), [], node_ports=50)
    assert limits.total == total


def test_the_admin_address_has_room_within_what_the_process_keeps_for_itself() -> None:
    """So silent connections there take no client's descriptor, and clients none of a health check's."""
    assert visits.MOST_BYTES // visits.CONNECTION_BYTES <= OWN_OPEN_FILES // 2
