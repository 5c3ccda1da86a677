"""A request of every API that clients may use, made so that it can be sent twice and answered alike.

Reads ask for what there is; writes are validated only, or name what does not exist. The broker has to look into
the body in every case, and its answer has to be a whole one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.support.frames import ONE_RECORD, record_batch

_TOPIC, _BROKER = 2, 4
_NOBODY = "nobody-knows-this"
_MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(frozen=True)
class Scene:
    """What the requests are about."""

    topic: str
    topic_id: UUID
    group: str
    """A group of this connection alone: joining it must not wait for anybody."""
    broker_id: int


def bodies(scene: Scene) -> Mapping[int, Mapping[str, Any]]:
    """api_key -> the fields of its request, of all versions together."""
    topic = {"name": scene.topic, "topic": scene.topic, "topic_id": scene.topic_id, "topic_name": scene.topic}
    record = record_batch(-1, -1, -1, records=ONE_RECORD)
    unknown = {"group_id": _NOBODY, "member_id": _MEMBER, "generation_id": 1}
    no_transaction = {"transactional_id": _NOBODY, "producer_id": 12345, "producer_epoch": 0}
    setting = {"name": "retention.ms", "value": "86400000", "config_operation": 0}
    any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    any_acl_names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    an_acl = {"resource_type": 2, "resource_name": "x", "principal": "User:x", "host": "*", "operation": 3}
    offset = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "here"}
    return {
        0: {
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [{**topic, "partition_data": [{"index": 0, "records": record}]}],
        },
        1: {
            "max_bytes": 1000,
            "max_wait_ms": 50,
            "topics": [{**topic, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
        },
        2: {"topics": [{**topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]},
        3: {"topics": [{"name": scene.topic}]},
        8: {"group_id": scene.group, "topics": [{**topic, "partitions": [offset]}]},
        9: {
            "group_id": scene.group,
            "topics": [{**topic, "partition_indexes": [0]}],
            "groups": [{"group_id": scene.group, "topics": [{**topic, "partition_indexes": [0]}]}],
        },
        10: {"key": scene.group, "coordinator_keys": [scene.group]},
        11: {
            "group_id": scene.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\x00" * 10}],
        },
        12: unknown,
        13: {**unknown, "members": [{"member_id": _MEMBER}]},
        14: unknown,
        15: {"groups": [_NOBODY]},
        16: {},
        17: {"mechanism": "PLAIN"},
        18: {"client_software_name": "raw", "client_software_version": "1"},
        19: {"topics": [{"name": "no/such/name", "num_partitions": 1, "replication_factor": 1}]},
        20: {"topic_names": [_NOBODY], "topics": [{"name": _NOBODY}], "timeout_ms": 1000},
        21: {
            "topics": [{**topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 5000,
        },
        22: {"transactional_id": None, "transaction_timeout_ms": 60_000},
        23: {"topics": [{**topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        24: {
            "transactions": [{**no_transaction, "topics": [{**topic, "partitions": [0]}]}],
            "v3_and_below_transactional_id": _NOBODY,
            "v3_and_below_producer_id": 12345,
            "v3_and_below_topics": [{**topic, "partitions": [0]}],
        },
        25: {**no_transaction, "group_id": _NOBODY},
        26: {**no_transaction, "committed": True},
        28: {**no_transaction, "group_id": _NOBODY, "topics": [{**topic, "partitions": [offset]}]},
        29: {**any_acl, **any_acl_names},
        30: {"creations": [{**an_acl, "permission_type": 3}]},
        31: {"filters": [{**any_acl, **any_acl_names}]},
        32: {
            "resources": [
                {"resource_type": _TOPIC, "resource_name": scene.topic, "configuration_keys": None},
                {
                    "resource_type": _BROKER,
                    "resource_name": str(scene.broker_id),
                    # A few: the codec takes no frame above 64 KiB.
                    "configuration_keys": ["listeners", "advertised.listeners", "log.dirs", "num.io.threads"],
                },
            ],
            "include_synonyms": True,
            "include_documentation": True,
        },
        33: {
            "resources": [{"resource_type": _TOPIC, "resource_name": scene.topic, "configs": [setting]}],
            "validate_only": True,
        },
        34: {},
        35: {"topics": [{**topic, "partitions": [0]}]},
        36: {"auth_bytes": b"\x00nobody\x00nothing"},
        37: {
            "topics": [{**topic, "count": 1, "assignments": None}],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        38: {"max_lifetime_ms": 1000},
        39: {"hmac": b"none", "renew_period_ms": 1000},
        40: {"hmac": b"none", "expiry_time_period_ms": 1000},
        41: {"owners": None},
        42: {"groups_names": [scene.group]},
        43: {"topic_partitions": [{**topic, "partitions": [0]}], "timeout_ms": 5000},
        44: {
            "resources": [{"resource_type": _TOPIC, "resource_name": scene.topic, "configs": [setting]}],
            "validate_only": True,
        },
        45: {"timeout_ms": 1000},
        46: {"topics": None, "timeout_ms": 1000},
        47: {"group_id": _NOBODY, "topics": [{**topic, "partitions": [{"partition_index": 0}]}]},
        48: {"components": [{"entity_type": "user", "match_type": 2, "match": None}]},
        49: {"validate_only": True},
        50: {"users": None},
        51: {},
        55: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        57: {"validate_only": True},
        60: {},
        61: {"topics": [{**topic, "partition_indexes": [0]}]},
        64: {"broker_id": 987_654},
        65: {"transactional_ids": [_NOBODY]},
        66: {},
        68: {**unknown, "member_epoch": 5, "rebalance_timeout_ms": -1, "topic_partitions": None},
        69: {"group_ids": [_NOBODY]},
        71: {"client_instance_id": UUID(int=0)},
        72: {"client_instance_id": UUID(int=7), "subscription_id": 1},
        74: {"resource_types": [_TOPIC]},
        75: {"topics": [topic], "cursor": None},
        76: {**unknown, "member_epoch": 5},
        77: {"group_ids": [_NOBODY]},
        78: {
            "group_id": scene.group,
            "member_id": _MEMBER,
            "share_session_epoch": 3,
            "max_wait_ms": 50,
            "topics": [{**topic, "partitions": [{"partition_index": 0}]}],
        },
        79: {
            "group_id": scene.group,
            "member_id": _MEMBER,
            "share_session_epoch": 3,
            "topics": [{**topic, "partitions": [{"partition_index": 0}]}],
        },
        80: {"cluster_id": "not-this-one", "voter_id": 1, "voter_directory_id": UUID(int=5)},
        81: {"cluster_id": "not-this-one", "voter_id": 1, "voter_directory_id": UUID(int=5)},
        88: {**unknown, "member_epoch": 5, "topology": None, "user_endpoint": None},
        89: {"group_ids": [_NOBODY]},
        90: {"groups": [{"group_id": scene.group, "topics": [{**topic, "partitions": [0]}]}]},
        91: {"group_id": scene.group, "topics": [{**topic, "partitions": [{"partition_index": 0}]}]},
        92: {"group_id": "nobody-shares", "topics": [topic]},
        93: {"group_id": scene.group, "member_id": "nobody", "topology_epoch": 1},
        94: {"controller_id": 987_654},
    }


VOLATILE = frozenset(
    {
        "throttle_time_ms",
        "base_offset",
        "log_append_time_ms",
        "session_id",
        "member_id",
        "leader",
        "members",
        "producer_id",
        "producer_epoch",
        "client_instance_id",
        "usable_bytes",
        "total_bytes",
        "size",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "last_timestamp",
        "end_offset",
        "key",
        "group_id",
        "controller_id",
        "records",
    }
)
"""Fields that differ between two answers to one question: counters, clocks, names that brokers make up."""
