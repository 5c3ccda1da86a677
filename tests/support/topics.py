"""Making topics directly at the brokers lives in the sandbox, whose demo does it, too."""

from pidgate.sandbox.topics import create_topic

__all__ = ["create_topic"]
