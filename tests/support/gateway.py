"""The gateway in a process of its own lives in the sandbox, whose demo starts it, too; tests find it here."""

from pidgate.sandbox.gateway import GatewayNotReady, GatewayProcess, Metrics

__all__ = ["GatewayNotReady", "GatewayProcess", "Metrics"]
