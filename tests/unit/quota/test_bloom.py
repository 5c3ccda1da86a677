"""Shapes, indices and bits of one layer, against the vectors of commons-collections."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.layered_filter import BloomLayer, HashPair, shape

HASHES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@pytest.mark.parametrize(
    ("n", "p", "expected"),
    [
        (25, 0.001, (360, 10)),
        (1000, 0.001, (14_378, 10)),
        (10, float(Fraction(1, 2_000_000)), (302, 21)),
        (13, 0.001, (187, 10)),
        (100, 0.001, (1_438, 10)),
        (25, 0.01, (240, 7)),
    ],
)
def test_vectors_of_the_shape(n: int, p: float, expected: tuple[int, int]) -> None:
    assert shape(n, p) == expected


@pytest.mark.parametrize(("n", "p"), [(0, 0.001), (10, 0.0), (10, 1.0)])
def test_impossible_shapes(n: int, p: float) -> None:
    with pytest.raises(ValueError, match="no filter"):
        shape(n, p)


def indices(pair: HashPair, k: int, m: int) -> Iterator[int]:
    """Yield the k bit positions below m for a hash pair: enhanced double hashing; positions may repeat."""
    index, step = pair[0] % m, pair[1] % m
    yield index
    for i in range(1, k):
        index = (index - step) % m
        yield index
        step = (step - i) % m


def test_vector_of_enhanced_double_hashing() -> None:
    expected = [1, 0, 0, 2, 7, 16, 30, 50, 5, 40, 12, 66, 59, 64, 10, 42, 17]
    assert list(indices((1, 1), 17, 72)) == expected


@given(HASHES, st.integers(1, 25), st.integers(1, 400))
def test_indices_are_bits_of_the_layer(pair: tuple[int, int], k: int, m: int) -> None:
    positions = list(indices(pair, k, m))
    assert len(positions) == k
    assert all(0 <= position < m for position in positions)
    layer = BloomLayer(1, m, k)
    layer.add(pair)
    assert {i for i in range(m) if layer.data[i // 8] >> i % 8 & 1} == set(positions)


@given(st.sets(HASHES, max_size=60))
def test_what_was_put_in_is_in(pairs: set[tuple[int, int]]) -> None:
    layer = BloomLayer(30, *shape(30, 0.01))
    for pair in pairs:
        layer.add(pair)
    assert all(pair in layer for pair in pairs)
    assert layer.count == len(pairs)
    assert layer.is_full is (len(pairs) >= 30)


def test_an_empty_layer_holds_nothing_and_has_its_size() -> None:
    layer = BloomLayer(1_000, *shape(1_000, 0.001))
    assert (5, 7) not in layer
    assert layer.size_bytes == 1_798
