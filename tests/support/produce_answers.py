"""The errors in an answer to a Produce, read at once."""

from pidgate.protocol.frames import Buffer
from pidgate.protocol.produce_answers import PartitionError, behind_header, read_errors
from pidgate.protocol.work import at_once


def partition_errors(buf: Buffer, start: int, end: int, version: int) -> list[PartitionError]:
    """Return every partition of the answer buf[start:end] (its header included) whose error code is not 0.

    Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    return at_once(read_errors(behind_header(buf, start, end, version), version))
