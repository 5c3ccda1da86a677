"""Every answer that shows a broker's address, found in the schemas, rewritten, and compared with kio's
writing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from pidgate.protocol.addresses import rewrite, shows_addresses
from pidgate.protocol.errors import MalformedFrame, UnsupportedVersion
from pidgate.protocol.headers import is_flexible
from pidgate.protocol.versions import SPOKEN
from tests.support.bounds import examples, of_each_api
from tests.support.frames import (
    entities,
    entity_class,
    nested_classes,
    read_response,
    response_frame,
    streams_addresses,
    translated,
    unframed,
)
from tests.support.rules import rule

# Every version that is offered and that kio has a class for.
OFFERED = [
    (api_key, version)
    for api_key, api in SPOKEN.items()
    if api_key in api_key_map
    for version in schema_name_map[api_key_map[api_key]]
    if api.min_version <= version <= api.max_version
]
NOT_BROKERS = {"UserEndpoint", "Endpoint"}  # KIP-1071: the application instances' own


def shown_in_schema(api_key: int, version: int) -> bool:
    return any(
        {"host", "port"} <= set(nested.__dataclass_fields__) and nested.__name__ not in NOT_BROKERS
        for nested in nested_classes(entity_class(api_key, version))
    )


SHOWN = [(key, version) for key, version in OFFERED if shows_addresses(key, version)]
TRIED = of_each_api(SHOWN)
SPLICED = [(key, version) for key, version in TRIED if key != 32]


DESCRIBE_QUORUM = 55


def same(_node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def gateway(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"gw.example.{len(host)}", 9300 + node_id % 1000 + port % 7


@pytest.mark.parametrize(("api_key", "version"), OFFERED)
def test_every_answer_with_a_host_and_a_port_is_known(api_key: int, version: int) -> None:
    known = shows_addresses(api_key, version) or streams_addresses(api_key, version)
    assert known == (shown_in_schema(api_key, version) or api_key == 32)
    assert not (shows_addresses(api_key, version) and streams_addresses(api_key, version))


@rule("No real broker address reaches a client.", "protocol")
@pytest.mark.parametrize(("api_key", "version"), SPLICED)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_addresses_are_translated_and_all_else_stays(api_key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(api_key, version)))
    frame = response_frame(entity)
    inside = memoryview(bytearray(b"xyz" + frame + b"next"))
    answer = unframed(rewrite(api_key, version, inside, 3, 3 + len(frame), gateway))
    assert answer == response_frame(translated(entity, gateway))


@pytest.mark.parametrize(("api_key", "version"), TRIED)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_translating_to_the_same_changes_nothing(api_key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(api_key, version)))
    frame = response_frame(entity)
    answer = unframed(rewrite(api_key, version, frame, 0, len(frame), same))
    assert answer == (response_frame(translated(entity, same)) if api_key == DESCRIBE_QUORUM else frame)


@rule("Unknown tagged fields survive a rewrite.", "protocol")
@pytest.mark.parametrize(("api_key", "version"), [api for api in TRIED if is_flexible(*api)])
@settings(max_examples=examples(20))
@given(data=st.data())
def test_unknown_tags_survive(api_key: int, version: int, data: st.DataObject) -> None:
    unknown = b"\x63\x03abc"
    entity = data.draw(entities(entity_class(api_key, version)))
    if api_key == 0:
        entity = replace(entity, node_endpoints=())  # its own tag would be before ours
    frame = response_frame(entity)
    assert frame[-1] == 0
    frame = frame[:-1] + b"\x01" + unknown
    answer = unframed(rewrite(api_key, version, frame, 0, len(frame), gateway))
    assert answer == response_frame(translated(entity, gateway))[:-1] + b"\x01" + unknown


@pytest.mark.parametrize(("api_key", "version"), [api for api in TRIED if api[0] != 3])
@settings(max_examples=examples(10))
@given(data=st.data())
def test_every_cut_is_malformed(api_key: int, version: int, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(entity_class(api_key, version), max_elements=2)))
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            rewrite(api_key, version, frame, 0, end, gateway)
    with pytest.raises(MalformedFrame):
        rewrite(api_key, version, frame + b"\x00", 0, len(frame) + 1, gateway)


@rule("A frame that cannot be parsed closes the connection or is forwarded byte for byte.", "protocol")
@pytest.mark.parametrize(
    ("api_key", "version"), [(55, 3), (3, 14), (60, 3), (10, 7), (32, 5), (79, 3), (79, 0)]
)
def test_what_cannot_be_walked_is_never_passed(api_key: int, version: int) -> None:
    assert shows_addresses(api_key, version)
    with pytest.raises(UnsupportedVersion):
        rewrite(api_key, version, bytes(30), 0, 30, gateway)


# DescribeConfigs

ADDRESSES = [
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "zookeeper.connect",
    "rlmm.config.remote.log.metadata.common.client.bootstrap.servers",
]
SETTINGS = st.sampled_from([*ADDRESSES, "log.dirs", "listener.security.protocol.map", "retention.ms"])


def without_addresses(entity: Any) -> Any:
    def value(setting: Any) -> Any:
        return replace(setting, value=None) if setting.name in ADDRESSES else setting

    def config(setting: Any) -> Any:
        return replace(value(setting), synonyms=tuple(map(value, setting.synonyms)))

    def result(described: Any) -> Any:
        if described.resource_type != 4:
            return described
        return replace(described, configs=tuple(map(config, described.configs)))

    return replace(entity, results=tuple(map(result, entity.results)))


@st.composite
def described(draw: st.DrawFn, version: int) -> Any:
    entity = draw(entities(entity_class(32, version)))

    def named(setting: Any) -> Any:
        return replace(setting, name=draw(SETTINGS))

    def config(setting: Any) -> Any:
        return replace(named(setting), synonyms=tuple(map(named, setting.synonyms)))

    def result(one: Any) -> Any:
        return replace(
            one, resource_type=draw(st.sampled_from((2, 4, 8))), configs=tuple(map(config, one.configs))
        )

    return replace(entity, results=tuple(map(result, entity.results)))


@pytest.mark.parametrize("version", range(1, 5))
@settings(max_examples=examples(100))
@given(data=st.data())
def test_a_brokers_addresses_are_taken_out_of_its_settings(version: int, data: st.DataObject) -> None:
    entity = data.draw(described(version))
    frame = response_frame(entity)
    answer = unframed(rewrite(32, version, frame, 0, len(frame), gateway))
    assert answer == response_frame(without_addresses(entity))
    assert read_response(entity_class(32, version), answer) == without_addresses(entity)


def test_settings_of_version_0_are_read_too() -> None:
    setting = b"\x00\x09listeners" + b"\x00\x04x:92" + b"\x00\x01\x00"
    head = (
        bytes(8)
        + b"\x00\x00\x00\x01"
        + b"\x00\x00"
        + b"\xff\xff"
        + b"\x04"
        + b"\x00\x011"
        + b"\x00\x00\x00\x01"
    )
    answer = unframed(rewrite(32, 0, head + setting, 0, len(head + setting), gateway))
    assert answer == head + setting.replace(b"\x00\x04x:92", b"\xff\xff")
