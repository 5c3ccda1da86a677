"""The transactional id of a Produce request (versions 3-13): for the few requests about which something is told."""

from pidgate.protocol.frames import Buffer, Reader
from pidgate.protocol.produce import FIRST_FLEXIBLE

_FIRST_WITH_TRANSACTIONS = 3


def transactional_id(buf: Buffer, start: int, end: int) -> bytes | None:
    """Of the Produce request frame buf[start:end], as UTF-8; None: it names none. Raises MalformedFrame."""
    request = Reader(buf, start, end)
    request.skip(2)
    version = request.i16()
    if version < _FIRST_WITH_TRANSACTIONS:
        return None
    request.skip(4)
    request.skip_string()
    request.flexible = version >= FIRST_FLEXIBLE
    request.skip_tags()
    return request.raw_string()
