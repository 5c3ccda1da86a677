"""How many blocks of producer ids the cluster has handed out, as far as given ids show it."""

from __future__ import annotations

from pidgate.gateway.present.words import id_blocks
from pidgate.gateway.recording.id_blocks import BLOCKS, IdBlocks

HOUR_MS = 3_600_000


def test_blocks_that_other_brokers_and_producers_took_count_and_old_ones_do_not() -> None:
    blocks = IdBlocks()
    assert (blocks.newest, blocks.begun_1h(0), blocks.years_left(0)) == (-1, 0, None)
    blocks.note_given(1, 5_000, 0)
    blocks.note_given(2, 9_700, 1_000)
    assert (blocks.newest, blocks.begun_1h(1_000)) == (9, 0), "both brokers had their blocks before"
    blocks.note_given(2, 9_999, 2_000)
    blocks.note_given(1, 5_999, 2_000)
    assert blocks.begun_1h(2_000) == 0
    blocks.note_given(1, 12_000, 3_000)
    assert (blocks.newest, blocks.begun_1h(3_000)) == (12, 3), (
        "10 and 11 went to producers that bypass the gateway"
    )
    blocks.note_given(2, 11_000, 4_000)
    assert blocks.begun_1h(4_000) == 3
    assert blocks.begun_1h(3_000 + HOUR_MS) == 0


def test_the_forecast_is_that_of_the_last_hour() -> None:
    blocks = IdBlocks()
    blocks.note_given(None, 0, 0)
    blocks.note_given(None, (BLOCKS - 1_000 * 8_766 - 1) * 1_000, 0)
    blocks.note_given(None, (BLOCKS - 1_000 * 8_766) * 1_000, HOUR_MS)
    assert blocks.begun_1h(HOUR_MS) == 1
    assert blocks.years_left(HOUR_MS) == 999


def test_nobody_has_to_count_zeros() -> None:
    assert id_blocks(0, None) == "0 id blocks/1h"
    assert id_blocks(1, 999) == "1 id block/1h, 999 years left"
    assert id_blocks(12, 10**12) == "12 id blocks/1h, over 1 M years left"
