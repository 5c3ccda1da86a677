"""Why the events topic cannot be used, in words, and what to do about it: for the log and for metrics."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pidgate.gateway.topics.library_log import last_words
from pidgate.gateway.topics.own_client import CredentialsUnreadable

Doing = Literal["writing", "reading", "creating"]

_PERMISSIONS: dict[Doing, str] = {
    "writing": "Write and Describe",
    "reading": "Read and Describe",
    "creating": "Create and Describe",
}
_NOT_REACHED = (
    "check cluster.bootstrap_servers and own_client: the brokers and the addresses they advertise must be "
    "reachable from here"
)


class Cause(NamedTuple):
    """What went wrong, and what helps."""

    cause: str
    remedy: str


def explained(error: BaseException, doing: Doing, topic: str) -> Cause:
    """Out of what aiokafka raised, and of what it last complained of when the error itself says little."""
    text = _text(error)
    name = type(error).__name__
    if isinstance(error, CredentialsUnreadable):
        return Cause(text, "make the password file readable for the gateway")
    if name == "TopicAuthorizationFailedError" or "not authorized" in text:
        return Cause(text, f"allow the gateway's principal {_PERMISSIONS[doing]} on topic {topic}")
    if "Authenticat" in text or "[Error 33]" in text or "[Error 34]" in text or "[Error 58]" in text:
        return Cause(text, "check own_client.sasl: mechanism, username and password_file")
    if name == "UnknownTopicOrPartitionError" or "not found" in text:
        return Cause(text, f"create topic {topic}, or allow the gateway's principal Create on it")
    if name in ("NotEnoughReplicasError", "NotEnoughReplicasAfterAppendError"):
        return Cause(
            text, "too few replicas in sync: bring brokers back or lower the topic's min.insync.replicas"
        )
    if name in ("UnsupportedCodecError", "CorruptRecordException"):
        return Cause(text, "set compression.type of the topic to producer, gzip or uncompressed")
    return Cause(text, _NOT_REACHED)


def _text(error: BaseException) -> str:
    own = str(error) or type(error).__name__
    # Errors that only say that nothing worked: the reason stands in the library's log.
    if type(error).__name__ in (
        "KafkaConnectionError",
        "KafkaTimeoutError",
        "TimeoutError",
        "RequestTimedOutError",
        "UnknownTopicOrPartitionError",
        "NodeNotReadyError",
        "LeaderNotAvailableError",
        "NotLeaderForPartitionError",
    ):
        said = last_words()
        return f"{own}; {said}" if said and said not in own else own
    return own
