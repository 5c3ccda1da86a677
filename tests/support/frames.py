"""Build Kafka frames for tests without the code under test.

- Random requests and responses of every API: kio is the codec, Hypothesis draws the values.
- Record batches with a correct header and checksum (KIP-98).
- Produce requests: `produce_request` in every version, `produce_frame` by hand and fast for the simulator.

Requests from plain dictionaries are in raw.py.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from uuid import UUID

import crc32c
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from pidgate.protocol.fetch import FETCH, SHARE_FETCH
from pidgate.protocol.frames import Buffer, Translate
from pidgate.protocol.produce_answers import PartitionError, behind_header, read_errors
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.work import at_once

NOT_ENOUGH_REPLICAS = 19
PRODUCE_ONE_VERSION = 9
NAMED, BY_ID = 9, 13
"""Two versions of Produce: topics by name, and topics by id."""
TOPIC = b"model"
TOPIC_ID = bytes(range(1, 17))

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes": st.binary(max_size=30),
    "records": st.binary(max_size=300),
    "string": TEXT,
    "error_code": st.sampled_from(ErrorCode),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "datetime_i64": st.integers(0, 2**40).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    # kio reads the zero id as null.
    "uuid": st.uuids(),
}


Payload = Literal[EntityType.request, EntityType.response]


def entity_class(api_key: int, version: int, kind: Payload = EntityType.response) -> Any:
    """kio's class of a request or response."""
    module, name = schema_name_map[api_key_map[api_key]][version][kind].rsplit(":", 1)
    return getattr(import_module(module), name)


@cache
def entities(cls: Any, max_elements: int = 3) -> st.SearchStrategy[Any]:
    """Random instances of a kio class, every field and every known tag drawn."""
    hints = get_type_hints(cls)
    drawn = {field.name: _values(field, hints[field.name], max_elements) for field in fields(cls)}
    return st.fixed_dictionaries(drawn).map(lambda values: cls(**values))


def _values(field: "Field[Any]", hint: Any, max_elements: int) -> st.SearchStrategy[Any]:
    nullable = isinstance(hint, UnionType) and NoneType in get_args(hint)
    if nullable:
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    array = get_origin(hint) is tuple
    if array:
        hint = get_args(hint)[0]
        if isinstance(hint, UnionType):
            hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    kafka_type = field.metadata.get("kafka_type")
    values = _SCALARS[kafka_type] if kafka_type is not None else entities(hint, max_elements)
    if array:
        values = st.lists(values, max_size=max_elements).map(tuple)
    return st.none() | values if nullable else values


def serialize(entity: Any) -> bytes:
    """The entity's body alone."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def response_frame(entity: Any, correlation_id: int = 7) -> bytes:
    """A response's frame without the size prefix."""
    return serialize(entity.__header_schema__(correlation_id=correlation_id)) + serialize(entity)


def request_frame(entity: Any, correlation_id: int = 7, client_id: str | None = "client") -> bytes:
    """A request's frame without the size prefix."""
    header = entity.__header_schema__(
        request_api_key=entity.__api_key__,
        request_api_version=entity.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return serialize(header) + serialize(entity)


def read_response(cls: type[Any], frame: bytes) -> Any:
    """The entity in a response's frame; all bytes must be used."""
    _, header_bytes = entity_reader(cls.__header_schema__)(frame, 0)
    entity, body_bytes = entity_reader(cls)(frame, header_bytes)
    assert header_bytes + body_bytes == len(frame)
    return entity


def framed(frame: bytes) -> bytes:
    """A frame with its size prefix."""
    return len(frame).to_bytes(4, "big") + frame


def unframed(answer: bytes) -> bytes:
    """The frame in an answer; its size prefix must be right."""
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    return answer[4:]


@cache
def codec(module: str, name: str) -> Any:
    """A class of the second codec, kafka-python's kafka.protocol: `codec("producer", "ProduceResponse")`."""
    return getattr(import_module(f"kafka.protocol.{module}"), name)


def translated(entity: Any, translate: Translate) -> Any:
    """The same entity with every broker's address translated, and no listener of a controller: what a rewritten
    answer must decode to.
    """
    if isinstance(entity, tuple):
        return tuple(translated(element, translate) for element in entity)
    if not is_dataclass(entity):
        return entity
    names = {field.name for field in fields(entity)}
    changes = {name: translated(getattr(entity, name), translate) for name in names}
    if {"host", "port"} <= names and names & {"node_id", "broker_id"}:
        node_id = getattr(entity, "node_id" if "node_id" in names else "broker_id")
        if node_id != -1 and changes["host"]:
            changes["host"], changes["port"] = translate(node_id, changes["host"], changes["port"])
    if {"node_id", "listeners"} <= names:
        changes["listeners"] = ()  # controllers', to which no port of a gateway leads
    return replace(entity, **changes)  # type: ignore[type-var]


def nested_classes(cls: type[Any]) -> Iterator[type[Any]]:
    """A kio class and all classes of its fields."""
    yield cls
    for hint in get_type_hints(cls).values():
        for arg in (hint, *get_args(hint)):
            if is_dataclass(arg) and isinstance(arg, type):
                yield from nested_classes(arg)


def record_batch(
    producer_id: int,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    *,
    transactional: bool = False,
    records: bytes = b"",
    count: int = 1,
) -> bytes:
    """A magic 2 batch (KIP-98) with a right checksum; `records` is taken as it is."""
    attributes = 0x10 if transactional else 0
    tail = struct.pack(
        ">hiqqqhii", attributes, count - 1, 0, 0, producer_id, producer_epoch, base_sequence, count
    )
    checksum = crc32c.crc32c(tail + records)
    return struct.pack(">qiibI", 0, 49 + len(records), -1, 2, checksum) + tail + records


@lru_cache(maxsize=20_000)
def batch_of_values(
    producer_id: int, epoch: int, base_sequence: int, count: int, value: bytes, *, transactional: bool = False
) -> bytes:
    """Return a batch of `count` equal records."""
    records = b"".join(_record(n, value) for n in range(count))
    return record_batch(
        producer_id, epoch, base_sequence, transactional=transactional, records=records, count=count
    )


def _record(n: int, value: bytes) -> bytes:
    fields = b"\x00" + zigzag(0) + zigzag(n) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    return zigzag(len(fields)) + fields


def zigzag(value: int) -> bytes:
    """Return a signed varint."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(raw: bytes) -> bytes:
    return uvarint(len(raw) + 1) + raw


def places_of(repeated: RepeatedProduce) -> list[tuple[bytes, int]]:
    """Return the topic and partition of each batch that was recognised."""
    return [
        (topic, partition)
        for topic, of_topic in zip(repeated.topics, repeated.partitions, strict=True)
        for partition in of_topic
    ]


def old_message(magic: int, value: bytes = b"value") -> bytes:
    """A message of magic 0 or 1 without key, checksum zero."""
    body = struct.pack(">Ibb", 0, magic, 0) + (struct.pack(">q", 0) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qi", 0, len(body)) + body


ONE_RECORD = bytes.fromhex("0e00000001027800")
"""A record with the value x, for `record_batch`."""
Topics = list[tuple[str | UUID, list[tuple[int, bytes | None]]]]
"""Topic name or id, and its (partition, records)."""


def produce_one(topic: str, producer_id: int) -> bytes:
    """Return a Produce request of one record to partition 0, with its size prefix."""
    batch = record_batch(producer_id, records=ONE_RECORD)
    return framed(produce_request(PRODUCE_ONE_VERSION, [(topic, [(0, batch)])]))


def produce_request(
    version: int,
    topics: Topics,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    correlation_id: int = 7,
    client_id: str | None = "producer-1",
) -> bytes:
    """A Produce request's frame of any version from 0; topics are ids from version 13, names below."""
    if version < 3:
        return _old_produce_request(version, topics, acks, correlation_id, client_id)
    cls = entity_class(0, version, EntityType.request)
    module = import_module(cls.__module__)
    data = tuple(
        module.TopicProduceData(
            **{"topic_id" if version >= 13 else "name": topic},
            partition_data=tuple(
                module.PartitionProduceData(index=index, records=records) for index, records in partitions
            ),
        )
        for topic, partitions in topics
    )
    entity = cls(transactional_id=transactional_id, acks=acks, timeout=timedelta(seconds=30), topic_data=data)
    return request_frame(entity, correlation_id, client_id)


def _old_produce_request(
    version: int, topics: Topics, acks: int, correlation_id: int, client_id: str | None
) -> bytes:
    def string(value: str | None) -> bytes:
        raw = (value or "").encode()
        return struct.pack(">h", -1 if value is None else len(raw)) + raw

    frame = struct.pack(">hhi", 0, version, correlation_id) + string(client_id)
    frame += struct.pack(">hii", acks, 30_000, len(topics))
    for topic, partitions in topics:
        frame += string(str(topic)) + struct.pack(">i", len(partitions))
        for index, records in partitions:
            frame += struct.pack(">ii", index, -1 if records is None else len(records)) + (records or b"")
    return frame


Numbered = tuple[int, int, int, int, int, bytes]
"""Partition, producer id, epoch, base sequence, records, value of each record."""


def produce_frame(
    version: int,
    correlation_id: int,
    client_id: str,
    batches: tuple[Numbered, ...],
    *,
    topic: bytes = TOPIC,
    topic_id: bytes = TOPIC_ID,
    transactional_id: bytes | None = None,
    acks: int = -1,
) -> bytes:
    """Return a Produce request of version 9 to 13, with its size prefix."""
    name = client_id.encode()
    head = struct.pack(">hhih", 0, version, correlation_id, len(name)) + name
    key = topic_id if version >= BY_ID else _compact(topic)
    data = b"".join(
        struct.pack(">i", partition)
        + _compact(batch_of_values(*batch, transactional=transactional_id is not None))
        + b"\x00"
        for partition, *batch in batches
    )
    body = struct.pack(">hi", acks, 30_000) + b"\x02" + key + uvarint(len(batches) + 1) + data
    transaction = b"\x00" if transactional_id is None else _compact(transactional_id)
    # No tags in the header, then none in the topic and none in the request.
    return framed(head + b"\x00" + transaction + body + b"\x00\x00")


def partition_errors(buf: Buffer, start: int, end: int, version: int) -> list[PartitionError]:
    """Return the partitions of the Produce response buf[start:end] (header included) whose error code is not 0.

    Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    return at_once(read_errors(behind_header(buf, start, end, version), version))


def streams_addresses(api_key: int, api_version: int) -> bool:
    """Return whether a response can end in broker addresses and so passes through an EndpointsWalker (KIP-951)."""
    first = {FETCH: 16, SHARE_FETCH: 0}.get(api_key)
    return first is not None and api_version >= first
