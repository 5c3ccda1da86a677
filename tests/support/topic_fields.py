"""Requests of every API and version that name one topic, by each field in which it can be named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from pidgate.protocol import codec
from pidgate.protocol.versions import SPOKEN

Given = dict[str, Any]
Path = tuple[str, ...]

_PRODUCE = 0
_TOPIC = 2
"""The resource type."""


def named_in_each_field(name: str, topic_id: UUID | None = None) -> Iterator[tuple[int, int, Given]]:
    """Yield (api key, version, body for raw.request); Produce excepted, which no codec walks."""
    for api_key, api in SPOKEN.items():
        struct = codec.message_class(api_key, "request")._struct
        for version in range(api.min_version, api.max_version + 1):
            for path, value in _topic_fields(struct, version, name, topic_id):
                if api_key != _PRODUCE:
                    yield api_key, version, _body(struct, path, value)


def _topic_fields(
    struct: Any, version: int, name: str, topic_id: UUID | None, path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Every field of a request that the schema marks as a topic's name, or that is a topic id."""
    for field in struct._fields:
        if not field.for_version_q(version):
            continue
        here = (*path, field.name)
        if field.is_struct_array() or field.is_struct():
            yield from _topic_fields(field, version, name, topic_id, here)
        elif field._entity_type == "topicName":
            yield here, name if field.type_str == "string" else [name]
        elif field.name == "topic_id":
            if topic_id is not None:
                yield here, topic_id
        elif field.name == "resource_name":
            yield here, {field.name: name, "resource_type": _TOPIC}
        elif field.name == "resource_name_filter":
            yield here, {field.name: name, "resource_type_filter": _TOPIC}


def _body(struct: Any, path: Path, value: Any) -> Given:
    """The fields of a request in which one field holds the value, around it what has to be."""
    name, *rest = path
    if not rest:
        return value if isinstance(value, dict) else {name: value}
    (field,) = (field for field in struct._fields if field.name == name)
    inner = _body(field, tuple(rest), value)
    for index in ("partitions", "partition_indexes"):
        of_partitions = next((one for one in field._fields if one.name == index), None)
        if of_partitions is not None and of_partitions.is_array() and len(rest) == 1:
            inner[index] = [{}] if of_partitions.is_struct_array() else [0]
    return {name: [inner] if field.is_struct_array() else inner}
