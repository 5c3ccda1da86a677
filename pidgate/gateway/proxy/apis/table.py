"""The table of APIs: (API key, version) -> handler. PURE.

To rewrite another API, add a module in this folder and a row to ROWS. An API without a row is forwarded
unread; an API missing from APIS was never offered.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.lane.lanes import ANSWER_ENDS_IN_TAGS, ANSWER_UNREAD
from pidgate.gateway.proxy.apis.api import Api
from pidgate.gateway.proxy.apis.authentication import (
    ApiVersionsApi,
    CredentialApi,
    NotOffered,
    SaslAuthenticateApi,
    SaslHandshakeApi,
)
from pidgate.gateway.proxy.apis.client_quotas import AlterQuotasApi, DescribeQuotasApi
from pidgate.gateway.proxy.apis.delegation_tokens import CreateTokenApi, DescribeTokensApi
from pidgate.gateway.proxy.apis.fetch import FETCH_API, FETCH_WITH_ENDPOINTS
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.producer_ids import EndTxnApi, InitProducerIdApi
from pidgate.gateway.proxy.apis.responses import ENDPOINTS_LAST
from pidgate.gateway.proxy.apis.topics import AddressesApi, ErrorTextsApi, MetadataApi, TopicListApi
from pidgate.gateway.proxy.apis.transaction_parts import TransactionPartApi
from pidgate.protocol.addresses import shows_addresses
from pidgate.protocol.error_texts import WITH_ERROR_TEXTS
from pidgate.protocol.fetch import SHARE_FETCH
from pidgate.protocol.gateway_topics import CONSUMER_GROUP_HEARTBEAT, DESCRIBE_TOPIC_PARTITIONS
from pidgate.protocol.versions import SPOKEN

_ADDRESSES: Final = AddressesApi()
_ERROR_TEXTS: Final = ErrorTextsApi()
_CREDENTIAL: Final = CredentialApi()
_TOPIC_LIST: Final = TopicListApi()
_TRANSACTION_PART: Final = TransactionPartApi()


class PassingApi(Api):
    """An API of which nothing is read."""

    is_repeatable = True


ROWS: Final[tuple[tuple[int, int, Api], ...]] = (
    (0, 0, PRODUCE_API),
    (1, 0, FETCH_API),
    (1, 16, FETCH_WITH_ENDPOINTS),  # KIP-951
    (3, 0, MetadataApi()),
    (17, 0, SaslHandshakeApi()),
    (18, 0, ApiVersionsApi()),
    (22, 0, InitProducerIdApi()),
    (24, 0, _TRANSACTION_PART),  # AddPartitionsToTxn
    (25, 0, _TRANSACTION_PART),  # AddOffsetsToTxn
    (26, 5, EndTxnApi()),  # KIP-890 part 2: answers with the producer id to go on with
    (28, 0, _TRANSACTION_PART),  # TxnOffsetCommit
    (36, 0, SaslAuthenticateApi()),
    (38, 0, CreateTokenApi()),
    (39, 0, _CREDENTIAL),  # RenewDelegationToken
    (40, 0, _CREDENTIAL),  # ExpireDelegationToken
    (41, 0, DescribeTokensApi()),
    (48, 0, DescribeQuotasApi()),
    (49, 0, AlterQuotasApi()),
    (50, 0, _CREDENTIAL),  # DescribeUserScramCredentials
    (51, 0, _CREDENTIAL),  # AlterUserScramCredentials
    (CONSUMER_GROUP_HEARTBEAT, 0, _TOPIC_LIST),
    (DESCRIBE_TOPIC_PARTITIONS, 0, _TOPIC_LIST),
    (78, 0, FETCH_WITH_ENDPOINTS),  # ShareFetch
)
"""(API key, first version, handler). A later row of the same key applies to later versions."""

NOT_OFFERED: Final = NotOffered()
_PASSES: Final = PassingApi()


def handler_of(api_key: int, api_version: int) -> Api:
    """Return the handler of an API in a version that is offered."""
    found = [api for key, first, api in ROWS if key == api_key and first <= api_version]
    if found:
        return found[-1]
    if shows_addresses(api_key, api_version):
        return _ADDRESSES
    if api_key in WITH_ERROR_TEXTS:
        return _ERROR_TEXTS
    return _PASSES


APIS: Final[dict[int, Api]] = {
    api_key << 16 | version: handler_of(api_key, version)
    for api_key, api in SPOKEN.items()
    for version in range(api.min_version, api.max_version + 1)
}
"""Keyed by both numbers in one int, because every request is looked up."""

ANSWERS_IN_LANES: Final[dict[int, int]] = {
    key: ANSWER_ENDS_IN_TAGS if api.passing is ENDPOINTS_LAST else ANSWER_UNREAD
    for key, api in APIS.items()
    if api.is_repeatable and key >> 16 != SHARE_FETCH
}
"""How a lane passes the answers of APIs whose requests it may pass. Keys as in APIS."""
