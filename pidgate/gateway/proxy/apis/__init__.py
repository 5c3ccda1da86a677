"""Handlers of Kafka APIs: one module per API or family, looked up in table.py."""
