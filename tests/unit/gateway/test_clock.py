"""The gateway's clocks."""

import asyncio
from types import SimpleNamespace
from typing import cast

from pidgate.gateway.clock import monotonic_ms


def clock_at(time_s: float) -> int:
    loop = SimpleNamespace(time=lambda: time_s)
    return monotonic_ms(cast(asyncio.AbstractEventLoop, loop))()


def test_a_timer_that_is_set_for_a_millisecond_finds_it_reached() -> None:
    for at_ms in (*range(1_024_000, 1_030_000), *range(2**40, 2**40 + 1_000)):
        assert clock_at(at_ms / 1000) == at_ms


def test_a_millisecond_is_not_over_before_its_end() -> None:
    assert clock_at(1.0009) == 1_000
