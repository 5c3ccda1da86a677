"""Quotas that are set while gateways run: kept in a topic that all follow, in the state directory, in memory."""
