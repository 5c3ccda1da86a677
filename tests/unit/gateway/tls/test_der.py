"""Elements of DER: what is no DER is not read, since Java may read it as something else."""

import pytest

from pidgate.gateway.tls.der import content
from tests.support.subjects import tlv

OCTETS = 0x04


@pytest.mark.parametrize("length", ["820000", "810102", "82000102"])
def test_a_length_that_is_not_in_its_shortest_form_is_refused(length: str) -> None:
    with pytest.raises(ValueError, match="shortest form"):
        content(bytes.fromhex(f"04{length}") + bytes(2), 0, OCTETS)


def test_a_length_in_its_shortest_form_is_read() -> None:
    for size in (0, 0x7F, 0x80, 0xFF, 0x100):
        assert content(tlv(OCTETS, bytes(size)), 0, OCTETS) == bytes(size)
