"""Client ids without their counted or random parts."""

import pytest

from pidgate.findings.families import family


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        ("producer-17", "producer-*"),
        ("orders-6d5f9c7b8-x7k2p", "orders-*-*"),
        ("pool2.thread-3", "pool*.thread-*"),
        ("app7", "app*"),
        ("web-hqzvk", "web-*"),
        ("web-nr899", "web-*"),
        ("etl", "etl"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "*"),
        ("", ""),
    ],
)
def test_families(client_id: str, expected: str) -> None:
    assert family(client_id) == expected
