"""The table of APIs keeps the promises of each: no address leaks, no gateway topic is reached, a later row is later."""

from itertools import pairwise

from pidgate.gateway.proxy.apis.api import UNREAD
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED, ROWS
from pidgate.gateway.proxy.apis.topics import GuardedApi
from pidgate.protocol.addresses import shows_addresses
from pidgate.protocol.topic_refusals import GUARDED
from pidgate.protocol.versions import SPOKEN


def test_every_version_that_is_offered_is_handled_and_no_other() -> None:
    offered = {
        (api_key, version)
        for api_key, api in SPOKEN.items()
        for version in range(api.min_version, api.max_version + 1)
    }
    assert {divmod(index, 1 << 16) for index in APIS} == offered
    assert NOT_OFFERED not in APIS.values()


def test_no_answer_that_shows_an_address_passes_unread() -> None:
    shown = {index for index in APIS if shows_addresses(*divmod(index, 1 << 16))}
    assert shown
    assert [index for index in shown if APIS[index].passing is UNREAD] == []


def test_every_request_that_may_name_a_gateway_topic_is_looked_at() -> None:
    assert {
        type(APIS[index])
        for index in APIS
        if index >> 16 in GUARDED and not isinstance(APIS[index], GuardedApi)
    } == set()


def test_rows_stand_in_order() -> None:
    keys = [(api_key, first) for api_key, first, _ in ROWS]
    assert all(before < after for before, after in pairwise(keys))
