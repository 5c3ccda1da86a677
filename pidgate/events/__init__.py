"""The events of the events topic: definitions, JSON, versions, redaction.

`definitions.py` defines every type once; everything else is derived from it. Pure: no clock, no sockets, no
Kafka.
"""
