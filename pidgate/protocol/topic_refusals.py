"""Requests that name a gateway topic, and their refusal as a whole.

Uses kafka.protocol, whose schemas mark topic name fields, so a group, client or setting of the same name is
not refused. Slow; called only after gateway_topics.py has found the name or id in the request.

The response repeats every requested topic and partition with TOPIC_AUTHORIZATION_FAILED (29), including other
topics, because half a request cannot be processed here. Responses that do not repeat the request carry the
error at the top. Without such a field there is no response, and the connection is closed.
"""

from typing import Any, Final
from uuid import UUID

from pidgate.protocol import codec
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.frames import Buffer
from pidgate.protocol.gateway_topics import GatewayTopicSet
from pidgate.protocol.headers import RequestHead

GUARDED: Final = frozenset(
    {
        *(1, 2, 3),  # Fetch, ListOffsets, Metadata
        *(8, 9, 19, 20, 21, 23, 24, 28),  # offsets, topics, epochs, transactions
        *(29, 30, 31),  # ACLs, by resource name
        *(32, 33, 34, 35, 37, 43, 44, 45, 46, 47),  # administration
        *(55, 61, 68, 75, 76, 78, 79, 88, 90, 91, 92, 93),  # descriptions, group protocols, share groups
    }
)
"""API keys of all requests with a topic name or id field, except Produce.

A literal for the same reason as versions.SPOKEN; a test checks it against the schemas.
"""

_CURSOR: Final = "cursor"
"""The position from which a listing continues (DescribeTopicPartitions). It does not request that topic."""

_TOPIC_RESOURCE: Final = 2  # org.apache.kafka.common.resource.ResourceType.TOPIC; ConfigResource.Type.TOPIC
_ANY_RESOURCE: Final = 1  # for ACL filters
_REFUSED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

_ERROR_AT_TOP: Final = frozenset({29, 35, 46, 55, 68, 76, 78, 79, 88, 93})
"""API keys whose response does not repeat the request, or has a field that cannot be filled in here."""

_REPEATED: Final = {
    "responses": ("topics", "topic_names", "resources"),
    "results": ("topics", "resources", "creations"),
    "filter_results": ("filters",),
    "topics": ("topics",),
    "partitions": ("partitions", "partition_indexes"),
    "groups": ("groups",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "results_by_transaction": ("transactions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
}
"""Array of the response -> arrays of the request that it repeats; the first one present counts."""

_TOPIC_NAMES: Final = ("name", "topic", "topic_name")
_PARTITION_INDEXES: Final = ("partition_index", "partition", "index", "partition_id")
_KEYS: Final = ("topic_id", "resource_type", "resource_name", "group_id", "transactional_id", "producer_id")
"""Request fields that the response repeats; the client matches entries by them."""

_SAME: Final = {
    **dict.fromkeys(_TOPIC_NAMES, _TOPIC_NAMES),
    **dict.fromkeys(_PARTITION_INDEXES, _PARTITION_INDEXES),
    **{key: (key,) for key in _KEYS},
}


def names_gateway_topic(buf: Buffer, head: RequestHead, topics: GatewayTopicSet) -> Any | None:
    """Return the decoded request in `buf` if a topic field contains one of `topics`, otherwise None.

    Raises as codec.decode_request, including FrameTooLarge above its limit.
    """
    message = codec.decode_request(buf, head)
    names = frozenset(name.decode() for name in topics.names)
    return message if _is_about(message, names, frozenset(topics.ids)) else None


def _is_about(node: Any, names: frozenset[str], ids: frozenset[bytes]) -> bool:
    for field in node._struct._fields:
        if not field.for_version_q(node.version):
            continue
        value = getattr(node, field.name)
        if value is None:
            continue
        if field.is_struct_array():
            if any(_is_about(element, names, ids) for element in value):
                return True
        elif field.is_struct():
            if field.name != _CURSOR and _is_about(value, names, ids):
                return True
        elif isinstance(value, UUID):
            if field.name == "topic_id" and value.bytes in ids:
                return True
        elif field._entity_type == "topicName" and (
            value in names if isinstance(value, str) else not names.isdisjoint(value)
        ):
            return True
    return _is_topic_resource(node, names)


def _is_topic_resource(node: Any, names: frozenset[str]) -> bool:
    """Return whether a resource of DescribeConfigs and similar requests, or of an ACL, is a topic."""
    fields = node._struct.fields
    if "resource_type" in fields:
        return node.resource_type == _TOPIC_RESOURCE and node.resource_name in names
    if "resource_type_filter" in fields:
        return (
            node.resource_type_filter in (_TOPIC_RESOURCE, _ANY_RESOURCE)
            and node.resource_name_filter in names
        )
    return False


def refuse_request(head: RequestHead, message: Any) -> bytes | None:
    """Return the framed response to the decoded request `message`; None if no response can carry the error."""
    cls = codec.message_class(head.api_key, "response")
    asked = None if head.api_key in _ERROR_AT_TOP else message
    answer, errors = _repeat(cls, head.api_version, asked)
    return codec.encode_response(head.correlation_id, answer) if errors else None


def _repeat(cls: Any, version: int, asked: Any) -> tuple[Any, int]:
    """Return (response struct that repeats `asked`, number of error codes in it).

    `asked` is a request struct, an element of an array of names or partitions, or None if there is nothing to
    repeat.
    """
    values: dict[str, Any] = {}
    errors = 0
    for field in cls._struct._fields:
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        if field.is_struct_array():
            elements = [
                _repeat(getattr(cls, field.type_str), version, one) for one in _elements(field.name, asked)
            ]
            values[field.name] = [element for element, _ in elements]
            errors += sum(count for _, count in elements)
        elif field.is_struct():
            is_null = field.nullable_for_version_q(version)
            values[field.name] = None if is_null else _repeat(getattr(cls, field.type_str), version, None)[0]
        else:
            values[field.name] = _value(field, version, asked)
    own_code = next((name for name in ("error_code", "partition_error_code") if name in values), None)
    if own_code is not None and not errors:
        values[own_code] = _REFUSED
        errors = 1
    return cls(version=version, **values), errors


def _elements(name: str, asked: Any) -> Any:
    for candidate in _REPEATED.get(name, ()):
        if _has_field(asked, candidate):
            found = getattr(asked, candidate)
            if found:
                return found
    return ()


def _value(field: Any, version: int, asked: Any) -> Any:
    same = _SAME.get(field.name, ())
    if (same is _TOPIC_NAMES and isinstance(asked, str)) or (
        same is _PARTITION_INDEXES and isinstance(asked, int)
    ):
        return asked
    for name in same:
        if _has_field(asked, name):
            return getattr(asked, name)
    if field.is_array():
        return []
    if field.nullable_for_version_q(version):
        return None
    if field.type_str == "string":
        return field.default or ""
    if field.type_str == "int64" and not field.default:
        return -1  # unknown offset
    return field.default


def _has_field(asked: Any, name: str) -> bool:
    """Return whether the request struct has this field in its version."""
    struct = getattr(asked, "_struct", None)
    return struct is not None and name in struct.fields and struct.fields[name].for_version_q(asked.version)
