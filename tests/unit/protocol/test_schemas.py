"""The copied schemas: licensed, all in use, and read by the codec as an independent codec writes them."""

import datetime
import io
import types
import typing
import uuid
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from pidgate.protocol import codec, messages
from pidgate.protocol.frames import framed
from pidgate.protocol.headers import is_flexible, peek_request, response_header_version
from pidgate.protocol.versions import SPOKEN

FOLDER = Path(messages.__file__).parent / "schemas"
OWN = sorted(api_key for api_key, api in SPOKEN.items() if (FOLDER / f"{api.name}Request.json").exists())
OWN_VERSIONS = [
    (api_key, version)
    for api_key in OWN
    # Kafka 4 dropped v0 of the delegation tokens: forwarded for 3.9, but in no schema.
    for version in range(
        1 if 38 <= api_key <= 41 else SPOKEN[api_key].min_version, SPOKEN[api_key].max_version + 1
    )
    if version in schema_name_map.get(api_key_map.get(api_key, ""), {})
]
"""Those that kio knows; test_readings.py holds the newest to Java."""

PRIMITIVES: dict[str, Any] = {
    "int8": 7,
    "int16": 300,
    "uint16": 40_000,
    "int32": 70_000,
    "uint32": 3_000_000_000,
    "int64": 5_000_000_000,
    "float64": 1.5,
    "string": "grüße",
    "bytes": b"\x00\xff",
    "records": b"\x01\x02\x03",
    "uuid": uuid.UUID(int=9),
    "bool": True,
    "error_code": ErrorCode.not_enough_replicas,
    "timedelta_i32": datetime.timedelta(milliseconds=1234),
    "timedelta_i64": datetime.timedelta(milliseconds=12_345),
    "datetime_i64": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
}


def filled(schema: Any) -> Any:
    """An instance of a kio entity with a value in every field and two elements in every array."""
    hints = typing.get_type_hints(schema)
    return schema(**{field.name: value(field, hints[field.name]) for field in fields(schema)})


def value(field: Any, hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(value(field, element) for _ in range(2))
    if is_dataclass(hint):
        return filled(hint)
    return PRIMITIVES[field.metadata["kafka_type"]]


def body_of(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def test_each_schema_file_is_kafkas_own_and_serves_an_offered_api() -> None:
    names = {api.name + kind for api in SPOKEN.values() for kind in ("Request", "Response")}
    for file in FOLDER.glob("*.json"):
        assert file.read_text("utf-8").startswith("// Licensed to the Apache Software Foundation (ASF)")
        assert file.stem in names
    assert len(list(FOLDER.glob("*.json"))) == 2 * len(OWN)
    assert "Apache Kafka" in (FOLDER.parents[2] / "NOTICE").read_text("utf-8")


@pytest.mark.parametrize("api_key", sorted(SPOKEN))
def test_the_codec_has_both_messages_of_every_offered_api(api_key: int) -> None:
    for kind in ("request", "response"):
        cls = codec.message_class(api_key, kind)
        assert (cls.API_KEY, cls.type) == (api_key, kind)


@pytest.mark.parametrize(("api_key", "version"), OWN_VERSIONS)
def test_requests_read_and_written_as_kio_does(api_key: int, version: int) -> None:
    body = body_of(filled(load_request_schema(api_key, version)))
    tags = b"\x00" if is_flexible(api_key, version) else b""
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x05\x00\x02me" + tags
    frame = framed(head, body)
    message = codec.decode_request(frame, peek_request(frame, 4, len(frame)))
    assert codec.encode_request(5, "me", message) == frame


@pytest.mark.parametrize(("api_key", "version"), OWN_VERSIONS)
def test_responses_read_and_written_as_kio_does(api_key: int, version: int) -> None:
    body = body_of(filled(load_response_schema(api_key, version)))
    tags = b"\x00" if response_header_version(api_key, version) == 1 else b""
    frame = framed(b"\x00\x00\x00\x05", tags, body)
    message = codec.decode_response(api_key, version, frame, 4, len(frame))
    assert codec.encode_response(5, message) == frame
