"""Kafka's wire format: pure functions from bytes to values and back.

This package parses and writes frames. It knows no sockets, clock, quota or gateway. A frame is passed as
(buf, start, end), without its four byte size prefix, to avoid copies. Frames that a function returns for the
wire include the prefix.

Hot path (every frame): headers, produce. Splices that replace addresses and leave the rest: addresses,
metadata, fetch. Cold path (decode and encode): messages, and codec for kafka.protocol. The offered APIs:
versions.

Invalid input from a peer raises a KafkaProtocolError and nothing else.
"""
