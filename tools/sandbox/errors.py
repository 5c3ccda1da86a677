"""Errors of the sandbox.

SandboxError
├── JavaNotFound       no usable Java runtime on this machine
├── JarsNotResolved    the Kafka jars could not be had
├── ClusterNotReady    a node died or did not answer in time
└── ToolFailed         a Kafka command line tool ended with an error
"""


class SandboxError(Exception):
    """Root of everything the sandbox raises on purpose; the message says what to do."""


class JavaNotFound(SandboxError):
    """No Java runtime that the wanted Kafka version can run on."""


class JarsNotResolved(SandboxError):
    """Kafka's jars are neither cached nor could they be downloaded."""


class ClusterNotReady(SandboxError):
    """A node ended, or did not answer on the wire in time. Carries the end of its log."""


class ToolFailed(SandboxError):
    """A Java tool returned another exit code than 0. Carries its output."""
