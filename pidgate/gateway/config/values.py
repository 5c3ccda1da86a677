"""Types of configuration values, each checked by itself."""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, ConfigDict, PlainValidator, StringConstraints, WithJsonSchema

from pidgate import units
from pidgate.quota import settings as quota
from pidgate.units import Address

SECTION: Final = ConfigDict(frozen=True, extra="forbid", strict=True)
"""Configuration of every section's model."""


Network = IPv4Network | IPv6Network


class Advertise(NamedTuple):
    """The advertised address: a host, optionally with {node_id}, and a port (None: the node's own)."""

    host: str
    port: int | None


def _advertise(value: object) -> Advertise:
    # {node_id} is replaced as text, so braces need no quoting rules; any other brace is a typing mistake.
    host, port = units.split_host_port(value)
    if "{" in host.replace("{node_id}", "") or "}" in host.replace("{node_id}", ""):
        raise ValueError(f"{value!r} holds an unknown placeholder; the only one is {{node_id}}")
    if host in units.WILDCARD_HOSTS:
        raise ValueError(f"{host} is no address that a client can reach; write the host name clients use")
    if port == 0:
        raise ValueError("port 0 cannot be advertised; write the port that clients reach, or none")
    return Advertise(host, port)


def _positive(what: str) -> Callable[[int], int]:
    def check(value: int) -> int:
        if value <= 0:
            raise ValueError(f"must be above 0; write for example {what}")
        return value

    return check


def _server(value: object) -> Address:
    server = units.address(value)
    if server.port == 0:
        raise ValueError(f"{value!r} has port 0; write the port that the broker listens on, often 9092")
    return server


def _networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("is no list of addresses; write for example [10.0.0.5, 10.1.0.0/16]")
    found = []
    for one in value:
        try:
            found.append(ip_network(one))
        except ValueError as error:
            raise ValueError(
                f"{error}; write addresses of proxies, or networks, for example [10.0.0.5, 10.1.0.0/16]"
            ) from error
    return tuple(found)


_DURATION: Final = WithJsonSchema(
    {"type": ["string", "integer"], "title": "duration", "examples": ["30s", "1h"]}
)
_SIZE: Final = WithJsonSchema({"type": ["string", "integer"], "title": "size", "examples": ["1MiB", "5MB"]})
_ADDRESS: Final = WithJsonSchema({"type": "string", "title": "host:port"})

DurationMs = Annotated[int, PlainValidator(units.duration_ms), _DURATION]
PositiveDurationMs = Annotated[
    int, PlainValidator(units.duration_ms), AfterValidator(_positive("10s")), _DURATION
]
SizeBytes = Annotated[int, PlainValidator(units.size_bytes), AfterValidator(_positive("100MiB")), _SIZE]
RateMilli = Annotated[
    int,
    PlainValidator(units.rate),
    AfterValidator(quota.rate_milli),
    WithJsonSchema({"type": "number", "title": "number from 0 on", "minimum": 0}),
]
BindAddress = Annotated[Address, PlainValidator(units.address), _ADDRESS]
ServerAddress = Annotated[Address, PlainValidator(_server), _ADDRESS]
Advertised = Annotated[
    Advertise, PlainValidator(_advertise), WithJsonSchema({"type": "string", "title": "host or host:port"})
]
Mechanism = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ClaimName = Annotated[str, StringConstraints(pattern=r"^[^\s]{1,255}$")]
Networks = Annotated[
    tuple[Network, ...],
    PlainValidator(_networks),
    WithJsonSchema({"type": "array", "title": "list of addresses or networks", "items": {"type": "string"}}),
]
NodeIds = Annotated[
    tuple[int, ...],
    PlainValidator(units.node_id_list),
    WithJsonSchema(
        {"type": "array", "title": "list of ids or ranges", "items": {"type": ["integer", "string"]}}
    ),
]
