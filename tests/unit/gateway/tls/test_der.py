"""Elements of DER: what is no DER is not read, since Java may read it as something else."""

import pytest

from pidgate.gateway.tls.der import content

OCTETS = 0x04


@pytest.mark.parametrize("length", ["820000", "810102", "82000102"])
def test_a_length_that_is_not_in_its_shortest_form_is_refused(length: str) -> None:
    with pytest.raises(ValueError, match="shortest form"):
        content(bytes.fromhex(f"04{length}") + bytes(2), 0, OCTETS)


def test_a_length_in_its_shortest_form_is_read() -> None:
    for size in (0, 0x7F, 0x80, 0xFF, 0x100):
        length = {1: "", 2: "81", 3: "82"}[(size > 0x7F) + (size > 0xFF) + 1]
        digits = f"{size:04x}" if size > 0xFF else f"{size:02x}"
        assert content(bytes.fromhex(f"04{length}{digits}") + bytes(size), 0, OCTETS) == bytes(size)
