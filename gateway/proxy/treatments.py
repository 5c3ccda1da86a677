"""What becomes of the answer to each kind of request. PURE.

One table, (api key, version) -> Treatment, made from the versions we speak: a request that is not in it is
not forwarded. Most answers stream through in the chunks they came in; what may show a broker's address, a
producer id or an identity is looked at.
"""

from __future__ import annotations

from enum import IntEnum

from pidgate.protocol.addresses import shows_addresses
from pidgate.protocol.gateway_topics import CONSUMER_GROUP_HEARTBEAT, DESCRIBE_TOPIC_PARTITIONS
from pidgate.protocol.versions import SPOKEN

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 3, 17, 18
INIT_PRODUCER_ID, END_TXN, SASL_AUTHENTICATE, SHARE_FETCH = 22, 26, 36, 78
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49

FIRST_FETCH_WITH_ENDPOINTS = 16
"""KIP-951: Fetch v16+ names the new leaders' addresses at the end of the response."""

FIRST_END_TXN_WITH_PRODUCER_ID = 5
"""KIP-890 part 2: EndTxn v5+ answers with the producer id and epoch to go on with."""


class Treatment(IntEnum):
    """How an answer passes; from NOTED on, the request is looked into as well."""

    PASS = 0
    """Streams through unread."""
    PRODUCE = 1
    """Read whole (it is small); rewritten only when it may name a leader's address."""
    ADDRESSES = 2
    """Read whole, broker addresses rewritten."""
    ENDPOINTS_LAST = 3
    """Streams through a walker that rewrites the addresses at its end (Fetch, ShareFetch)."""
    TOPICS = 4
    """Read whole; what it shows of the gateway's own topics is taken out."""
    NOTED = 5
    """A boundary, not a treatment: those above it need something out of their request."""
    API_VERSIONS = 6
    SASL_HANDSHAKE = 7
    SASL_AUTHENTICATE = 8
    INIT_PRODUCER_ID = 9
    END_TXN = 10
    DESCRIBE_QUOTAS = 11
    """Read whole; the quotas that the gateway keeps are added."""
    ALTER_QUOTAS = 12
    """The gateway's own question in place of the client's; its answer is not for the client."""
    PRODUCE_THROTTLED = 13
    """As PRODUCE, and told how long its channel is muted. Given to single requests, never in the table."""
    METERED = 14
    """As PASS or ENDPOINTS_LAST, and counted against a byte rate. Given to single requests, never in the table."""


_BY_API = {
    PRODUCE: Treatment.PRODUCE,
    API_VERSIONS: Treatment.API_VERSIONS,
    SASL_HANDSHAKE: Treatment.SASL_HANDSHAKE,
    SASL_AUTHENTICATE: Treatment.SASL_AUTHENTICATE,
    CONSUMER_GROUP_HEARTBEAT: Treatment.TOPICS,
    DESCRIBE_TOPIC_PARTITIONS: Treatment.TOPICS,
    INIT_PRODUCER_ID: Treatment.INIT_PRODUCER_ID,
    DESCRIBE_CLIENT_QUOTAS: Treatment.DESCRIBE_QUOTAS,
    ALTER_CLIENT_QUOTAS: Treatment.ALTER_QUOTAS,
}


def _treatment(api_key: int, api_version: int) -> Treatment:
    if api_key in _BY_API:
        return _BY_API[api_key]
    if api_key == END_TXN and api_version >= FIRST_END_TXN_WITH_PRODUCER_ID:
        return Treatment.END_TXN
    if api_key == SHARE_FETCH or (api_key == FETCH and api_version >= FIRST_FETCH_WITH_ENDPOINTS):
        return Treatment.ENDPOINTS_LAST
    if shows_addresses(api_key, api_version):
        return Treatment.ADDRESSES
    return Treatment.PASS


def table_index(api_key: int, api_version: int) -> int:
    """The table's key: both numbers in one int, because the hot path looks it up for every request."""
    return api_key << 16 | api_version & 0xFFFF


TREATMENTS: dict[int, Treatment] = {
    table_index(api_key, version): _treatment(api_key, version)
    for api_key, api in SPOKEN.items()
    for version in range(api.min_version, api.max_version + 1)
}
