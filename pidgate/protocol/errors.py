"""Protocol errors, and the Kafka error codes that pidgate sends or checks.

    KafkaProtocolError            a peer violated the protocol: close its connection
     +-- MalformedFrame           the bytes are inconsistent
     |    +-- TruncatedFrame      the frame ends too early
     +-- FrameTooLarge            the frame or the response to it is above the limit
     +-- UnsupportedVersion       an (api key, version) that was never offered

An error closes one connection and does not affect the others.
"""

from enum import IntEnum


class KafkaProtocolError(Exception):
    """Base class: a peer violated the protocol or used an unsupported part of it."""


class MalformedFrame(KafkaProtocolError):
    """The bytes are inconsistent: a length or a count exceeds the frame, or bytes are left over."""


class TruncatedFrame(MalformedFrame):
    """The bytes end too early. For a frame that is still arriving, wait for more data."""


class FrameTooLarge(KafkaProtocolError):
    """A frame, or the response it needs, is longer than the limit."""


class UnsupportedVersion(KafkaProtocolError):
    """An API or version that the gateway does not parse and never offered in ApiVersions."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version


class ErrorCode(IntEnum):
    """Kafka's error codes (org.apache.kafka.common.protocol.Errors), as far as the code uses their names."""

    UNKNOWN_SERVER_ERROR = -1
    ILLEGAL_SASL_STATE = 34
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    NETWORK_EXCEPTION = 13
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    CONCURRENT_TRANSACTIONS = 51
    KAFKA_STORAGE_ERROR = 56
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
