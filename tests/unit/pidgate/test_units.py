"""Durations, sizes, rates, addresses and times as people write and read them."""

import pytest

from pidgate import units
from pidgate.quota.settings import rate_milli
from pidgate.units import Address


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        (" 5 m ", 300_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert units.duration_ms(text) == milliseconds


@pytest.mark.parametrize("value", [5, 5.0, True, None, "", "5", "1 hour", "-1s", "1h30m", ["1h"]])
def test_what_is_no_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="; write "):
        units.duration_ms(value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (65_536, 65_536),
        ("100MB", 10**8),
        ("100MiB", 100 * 2**20),
        ("64KiB", 65_536),
        ("1.5kB", 1_500),
    ],
)
def test_sizes(value: object, size: int) -> None:
    assert units.size_bytes(value) == size


@pytest.mark.parametrize("value", [-1, True, 1.5, "", "1 mb", "MB", None])
def test_what_is_no_size_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="; write "):
        units.size_bytes(value)


@pytest.mark.parametrize(("value", "thousandths"), [(0, 0), (100, 100_000), (2.5, 2_500), (0.001, 1)])
def test_rates(value: object, thousandths: int) -> None:
    assert rate_milli(units.rate(value)) == thousandths


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "100", None])
def test_what_is_no_rate_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"; (write|leave) "):
        units.rate(value)


@pytest.mark.parametrize(
    ("text", "address"), [("a.example:1", Address("a.example", 1)), ("[::1]:9092", Address("::1", 9092))]
)
def test_addresses_are_read_and_written_alike(text: str, address: Address) -> None:
    assert units.address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "value", ["", "a", "a:", "a:x", "a:65536", "a:-1", ":1", "[::1", "[::1]9", "a b:1", "a:²", 9092, None]
)
def test_what_is_no_address_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="; write "):
        units.address(value)


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        (["0-2", 5, "101-102"], (0, 1, 2, 5, 101, 102)),
        ("0-2, 101", (0, 1, 2, 101)),
        ([7], (7,)),
    ],
)
def test_node_ids(value: object, ids: tuple[int, ...]) -> None:
    assert units.node_id_list(value) == ids


@pytest.mark.parametrize("value", [[], "", 5, ["a"], [True], [-1], ["0-70000"], [1, "0-2"], [None], [[1]]])
def test_what_are_no_node_ids_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="; write "):
        units.node_id_list(value)


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_240, "1.2 s"),
        (59_400, "59 s"),
        (59_600, "1 min"),
        (750_000, "12 min"),
        (3_575_000, "1 h"),
        (12_600_000, "3.5 h"),
        (86_400_000, "1 d"),
    ],
)
def test_durations_are_rounded_to_one_unit(milliseconds: int, words: str) -> None:
    assert units.about_duration(milliseconds) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (850, "850 bytes"), (1_500, "1.5 kB"), (122_525_000, "122.5 MB"), (52 << 30, "55.8 GB")],
)
def test_sizes_are_rounded_to_one_decimal_unit(size: int, words: str) -> None:
    assert units.about_size(size) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (1_234_567, "1,234,567"), (12.5, "12.5"), (41.04, "41"), (0.25, "0.25")]
)
def test_numbers(value: float, words: str) -> None:
    assert units.number(value) == words


def test_names_from_outside_move_no_cursor_and_have_an_end() -> None:
    assert units.printable("a\x1b[2Jb\n\u202e\udc80") == "a\\x1b[2Jb\\n\\u202e\\udc80"
    assert len(units.printable("x" * 32_000)) == units.MOST_CHARACTERS
