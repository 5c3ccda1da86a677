"""The table of APIs keeps the promises of each: no address leaks, no gateway topic is reached, a later row is later."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import pytest

from pidgate.gateway.proxy.apis.produce import ProduceApi
from pidgate.gateway.proxy.apis.producer_ids import InitProducerIdApi
from pidgate.gateway.proxy.apis.responses import UNREAD
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED, ROWS, PassingApi, handler_of
from pidgate.gateway.proxy.apis.topics import AddressesApi
from pidgate.gateway.proxy.apis.transaction_parts import TransactionPartApi
from pidgate.protocol.addresses import shows_addresses
from pidgate.protocol.versions import NOT_OFFERED as WITHHELD
from pidgate.protocol.versions import SPOKEN
from tests.support.rules import rule
from tests.unit.protocol.test_versions import JSON_SCHEMAS

HEARTBEAT, FIND_COORDINATOR = 12, 10


def test_every_version_that_is_offered_is_handled_and_no_other() -> None:
    offered = {
        (api_key, version)
        for api_key, api in SPOKEN.items()
        for version in range(api.min_version, api.max_version + 1)
    }
    assert {divmod(index, 1 << 16) for index in APIS} == offered
    assert NOT_OFFERED not in APIS.values()


@rule("No real broker address reaches a client.", "protocol")
def test_no_answer_that_shows_an_address_passes_unread() -> None:
    shown = {index for index in APIS if shows_addresses(*divmod(index, 1 << 16))}
    assert shown
    assert [index for index in shown if APIS[index].passing is UNREAD] == []


def test_a_row_applies_from_its_version_up_to_the_next_row_of_its_key() -> None:
    for (before, _, earlier), (api_key, first, api) in pairwise(((-1, 0, NOT_OFFERED), *ROWS)):
        assert handler_of(api_key, first) is api
        if first:
            passed = earlier if before == api_key else handler_of(HEARTBEAT, 0)
            assert handler_of(api_key, first - 1) is passed


def test_an_api_without_a_row_passes_unless_its_answer_shows_addresses() -> None:
    assert type(handler_of(HEARTBEAT, 0)) is PassingApi
    assert isinstance(handler_of(FIND_COORDINATOR, 0), AddressesApi)


def test_rows_stand_in_order() -> None:
    keys = [(api_key, first) for api_key, first, _ in ROWS]
    assert all(before < after for before, after in pairwise(keys))


# APIs that could make producer state


class Standing(StrEnum):
    """Treatment of an API that could make producer state on brokers."""

    JUDGED = "judged"  # an id that is new here costs a token, or is refused
    WITHHELD = "withheld"  # neither offered nor forwarded
    MAKES_NONE = "makes none"


PRODUCER_STATE: Final[dict[int, tuple[Standing, str]]] = {
    0: (Standing.JUDGED, "each batch's producer id, by partition"),
    22: (Standing.JUDGED, "gives the id: where that is asked for, or above the rate of transactional ids"),
    24: (Standing.JUDGED, "the transaction's end writes a marker into each partition that it adds"),
    25: (Standing.JUDGED, "the same for the group's partition of __consumer_offsets"),
    26: (
        Standing.MAKES_NONE,
        "its markers go where a judged request added the id; a new id inherits (KIP-890)",
    ),
    27: (Standing.WITHHELD, "makes any id known in any partition, for whoever may alter the cluster"),
    28: (Standing.JUDGED, "a transactional batch in __consumer_offsets, since v5 added by itself"),
    66: (Standing.MAKES_NONE, "lists transactions, filtered by ids"),
}
"""Every API whose request holds records or a producer id."""

Schemas = dict[tuple[int, str], dict[str, Any]]
JUDGES = (ProduceApi, InitProducerIdApi, TransactionPartApi)


def fields(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for field in of.get("fields", ()):
        yield field
        yield from fields(field)


def holds_producer_ids(schema: dict[str, Any]) -> bool:
    """Return whether a message has a field for a producer id, or for records, which have one."""
    return any(
        "producerid" in field["name"].lower()
        or field.get("entityType") == "producerId"
        or field.get("type") == "records"
        for one in (schema, *schema.get("commonStructs", ()))
        for field in fields(one)
    )


def missing(schemas: Schemas, table: dict[int, tuple[Standing, str]]) -> set[int]:
    """Return the APIs whose request could make producer state, and which the table does not mention."""
    return {
        api_key
        for (api_key, kind), schema in schemas.items()
        if kind == "request" and api_key not in table and holds_producer_ids(schema)
    }


@rule("Every API that can create producer state is judged or withheld.", "protocol")
def test_every_api_that_could_make_producer_state_is_in_the_table() -> None:
    assert missing(JSON_SCHEMAS, PRODUCER_STATE) == set()
    assert all(holds_producer_ids(JSON_SCHEMAS[api_key, "request"]) for api_key in PRODUCER_STATE)


@pytest.mark.parametrize("api_key", sorted(PRODUCER_STATE))
def test_each_is_treated_as_the_table_says(api_key: int) -> None:
    standing, why = PRODUCER_STATE[api_key]
    handlers = {type(api) for index, api in APIS.items() if index >> 16 == api_key}
    assert why
    assert (standing is Standing.WITHHELD) == (not handlers) == (api_key in WITHHELD)
    if standing is Standing.JUDGED:
        assert all(issubclass(handler, JUDGES) for handler in handlers)


@pytest.mark.parametrize("api_key", sorted(PRODUCER_STATE))
def test_one_that_is_left_out_would_be_noticed(api_key: int) -> None:
    table = {key: row for key, row in PRODUCER_STATE.items() if key != api_key}
    assert missing(JSON_SCHEMAS, table) == {api_key}


def test_a_new_api_of_kafka_would_be_noticed() -> None:
    """Whatever its field is called, and however deep it lies."""
    one = {"name": "Ids", "type": "[]int64", "entityType": "producerId"}
    schema = {"fields": [{"name": "Topics", "type": "[]Topic", "fields": [one]}]}
    assert missing({(99, "request"): schema, (98, "response"): schema}, PRODUCER_STATE) == {99}
