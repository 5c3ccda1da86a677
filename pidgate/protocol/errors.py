"""Errors of this package, and the Kafka error codes that pidgate itself sends or looks for.

    KafkaProtocolError            a peer sent what we cannot go on with: close its connection
     +-- MalformedFrame           the bytes contradict themselves
     |    +-- TruncatedFrame      they end before what they announce
     +-- FrameTooLarge            the frame, or the answer to it, is above the limit
     +-- UnsupportedVersion       an (api key, version) that we cannot walk and never offered

None of them concerns other connections: they are closed one by one.
"""

from enum import IntEnum


class KafkaProtocolError(Exception):
    """Root: a peer broke the protocol, or used a part of it that we do not speak."""


class MalformedFrame(KafkaProtocolError):
    """The bytes contradict themselves: a length beyond the frame, a count beyond the bytes left, bytes left
    over.
    """


class TruncatedFrame(MalformedFrame):
    """The bytes end before what they announce. Of a frame that is still arriving: wait for more."""


class FrameTooLarge(KafkaProtocolError):
    """A frame, or an answer that would be needed, is longer than the limit allows."""


class UnsupportedVersion(KafkaProtocolError):
    """An API or a version of it that is not ours to read; it was never in an ApiVersions answer of ours."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version


class ErrorCode(IntEnum):
    """Kafka's error codes (org.apache.kafka.common.protocol.Errors), those that we use by name."""

    UNKNOWN_SERVER_ERROR = -1
    ILLEGAL_SASL_STATE = 34
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    CONCURRENT_TRANSACTIONS = 51
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    THROTTLING_QUOTA_EXCEEDED = 89
