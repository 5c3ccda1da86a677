"""Answers that end in addresses and stream through an EndpointsWalker (KIP-951), by API and first version."""

from pidgate.protocol.fetch import FETCH, SHARE_FETCH

_FIRST_VERSION = {FETCH: 16, SHARE_FETCH: 0}


def streams_addresses(api_key: int, api_version: int) -> bool:
    """Return whether an answer of this API must pass through an EndpointsWalker before a client may see it."""
    first = _FIRST_VERSION.get(api_key)
    return first is not None and api_version >= first
