"""The header of a request: which API, which version, which correlation id, whose client id.

Request header v1 is (api key, api version, correlation id, client id); v2 (flexible versions, KIP-482) adds a
tag buffer, and keeps the client id's int16 length. Response header v0 is the correlation id; v1 adds a tag
buffer. An ApiVersions answer always has response header v0 (KIP-511), since its reader does not know the
version yet.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from protocol.errors import MalformedFrame, UnsupportedVersion
from protocol.frames import Buffer, skip_tags

API_VERSIONS = 18

NEVER = 0x7FFF
"""First flexible version of an API that has none: above every version."""

FIRST_FLEXIBLE: dict[int, int] = {
    0: 9,  # Produce
    1: 12,  # Fetch
    2: 6,  # ListOffsets
    3: 9,  # Metadata
    8: 8,  # OffsetCommit
    9: 6,  # OffsetFetch
    10: 3,  # FindCoordinator
    11: 6,  # JoinGroup
    12: 4,  # Heartbeat
    13: 4,  # LeaveGroup
    14: 4,  # SyncGroup
    15: 5,  # DescribeGroups
    16: 3,  # ListGroups
    17: NEVER,  # SaslHandshake
    API_VERSIONS: 3,
    19: 5,  # CreateTopics
    20: 4,  # DeleteTopics
    21: 2,  # DeleteRecords
    22: 2,  # InitProducerId
    23: 4,  # OffsetForLeaderEpoch
    24: 3,  # AddPartitionsToTxn
    25: 3,  # AddOffsetsToTxn
    26: 3,  # EndTxn
    27: 1,  # WriteTxnMarkers
    28: 3,  # TxnOffsetCommit
    29: 2,  # DescribeAcls
    30: 2,  # CreateAcls
    31: 2,  # DeleteAcls
    32: 4,  # DescribeConfigs
    33: 2,  # AlterConfigs
    34: 2,  # AlterReplicaLogDirs
    35: 2,  # DescribeLogDirs
    36: 2,  # SaslAuthenticate
    37: 2,  # CreatePartitions
    38: 2,  # CreateDelegationToken
    39: 2,  # RenewDelegationToken
    40: 2,  # ExpireDelegationToken
    41: 2,  # DescribeDelegationToken
    42: 2,  # DeleteGroups
    43: 2,  # ElectLeaders
    44: 1,  # IncrementalAlterConfigs
    47: NEVER,  # OffsetDelete
    48: 1,  # DescribeClientQuotas
    49: 1,  # AlterClientQuotas
    53: 1,  # BeginQuorumEpoch
    54: 1,  # EndQuorumEpoch
} | dict.fromkeys((45, 46, 50, 51, 52, *range(55, 93)), 0)
"""First flexible version by api key. APIs made after KIP-482 (45 and up, mostly) were flexible from version
0."""


class RequestHead(NamedTuple):
    """A request's header, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Offset in the buffer of the first byte after the header."""


_HEAD = Struct(">hhih").unpack_from
_HEAD_BYTES = 10


def peek_request(buf: Buffer, start: int, end: int) -> RequestHead:
    """The header of the request frame buf[start:end].

    Raises MalformedFrame, or UnsupportedVersion for an API that is not in Kafka (its header's form is
    unknown).
    """
    try:
        api_key, api_version, correlation_id, length = _HEAD(buf, start)
    except struct_error as error:
        raise MalformedFrame("a request shorter than its header") from error
    body = start + _HEAD_BYTES
    client_id = None
    if length >= 0:
        client_id_end = body + length
        if client_id_end <= end:
            client_id = str(buf[body:client_id_end], "utf-8", "replace")
        body = client_id_end
    elif length != -1:
        raise MalformedFrame(f"a client id of {length} bytes")
    first_flexible = FIRST_FLEXIBLE.get(api_key)
    if first_flexible is None:
        raise UnsupportedVersion(api_key, api_version)
    if api_version >= first_flexible:
        body = skip_tags(buf, body, end)
    if body > end:
        raise MalformedFrame("a request shorter than its header")
    return RequestHead(api_key, api_version, correlation_id, client_id, body)


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, else 1. Raises UnsupportedVersion for an unknown API."""
    return 2 if is_flexible(api_key, api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """1 for flexible versions, else 0; ApiVersions has 0 always. Raises UnsupportedVersion for an unknown
    API."""
    return 1 if api_key != API_VERSIONS and is_flexible(api_key, api_version) else 0


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version uses compact types and tag buffers. Raises UnsupportedVersion for an unknown
    API."""
    first_flexible = FIRST_FLEXIBLE.get(api_key)
    if first_flexible is None:
        raise UnsupportedVersion(api_key, api_version)
    return api_version >= first_flexible
