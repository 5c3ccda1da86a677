"""Errors of the sandbox.

SandboxError
├── JavaNotFound       no usable Java runtime on this machine
├── JarsNotResolved    the Kafka jars are not available
├── ClusterNotReady    a node died or did not respond in time
├── NotInTime          a wait ended without progress: the machine is too busy
└── ToolFailed         a Kafka command line tool failed
"""


class SandboxError(Exception):
    """Base class of the sandbox's errors; the message has the remedy."""


class JavaNotFound(SandboxError):
    """No Java runtime supports the requested Kafka version."""


class JarsNotResolved(SandboxError):
    """Kafka's jars are not cached and cannot be downloaded."""


class ClusterNotReady(SandboxError):
    """A node ended or did not respond in time. Includes the end of its log."""


class NotInTime(SandboxError):
    """A wait ended by its bound. Nothing was found out about the product."""


class ToolFailed(SandboxError):
    """A Java tool returned a non-zero exit code. Includes its output."""
