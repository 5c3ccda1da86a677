"""Kafka's wire format, pure: bytes in, values or bytes out.

This package finds out what a frame says and writes frames; it knows no sockets, no clock, no quota and no
gateway. A frame here is the bytes after the four byte size prefix, given as (buf, start, end) so that nothing
is copied before it must be. What a function returns for the wire carries its size prefix.

Hot (every frame): headers, produce. Splices (an answer's addresses, the rest left as it is): addresses,
metadata, fetch. Cold (decode and encode through kafka.protocol): messages. What we let pass at all: versions.
Everything a peer can get wrong raises a KafkaProtocolError, and nothing else.
"""
