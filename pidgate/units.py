"""Parsing and formatting of durations, sizes, rates, addresses and times, for the whole product. PURE.

Imports nothing of pidgate; the time zone is passed in. `show_*` is exact and can be parsed again (90m,
100MiB); `about_*` rounds, for people only (1.5 h, 104.9 MB).
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from fractions import Fraction
from typing import Final, NamedTuple

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::", "*"})
ABOUT_DURATIONS: Final = (
    (84_600_000, 86_400_000, "d"),
    (3_570_000, 3_600_000, "h"),
    (59_500, 60_000, "min"),
    (1_000, 1_000, "s"),
)
"""Units of `about_duration`: minimum in ms, length in ms, name. Values that would round to 60 min become 1 h."""
HIGHEST_INTEGER: Final = 2**63 - 1
"""Of a rate that is an integer: Python's have any number of digits."""
MOST_CHARACTERS: Final = 60
"""Characters shown of a name; client ids may have 32 KiB."""


class Address(NamedTuple):
    """A host (name or IP, without brackets) and a TCP port; port 0 when listening means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def duration_ms(value: object) -> int:
    """Parse a duration such as "1h", "90s", "500ms" or "1.5h" as whole milliseconds.

    Raises ValueError otherwise. As for every parser here, its text is the remedy.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write {value}s, {value}ms, {value}m or {value}h")
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in _DURATION_MS:
        raise ValueError(f"{value!r} is not a duration; write for example 500ms, 10s, 5m, 1h or 7d")
    return round(Fraction(match[1]) * _DURATION_MS[match[2]])


def size_bytes(value: object) -> int:
    """Parse a size such as 65536, "64KiB" (2^10) or "100MB" (10^6) as bytes. Raises ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[2] or "B") not in _SIZE_BYTES:
        raise ValueError(f"{value!r} is not a size; write for example 65536, 64KiB, 100MB or 100MiB")
    return round(Fraction(match[1]) * _SIZE_BYTES[match[2] or "B"])


def rate(value: object) -> int | float:
    """Return a rate unchanged. Raises ValueError unless it is a finite number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number; write for example 100, without quotes or unit")
    if isinstance(value, int) and abs(value) > HIGHEST_INTEGER:
        raise ValueError("is too high; leave the key out for no limit")
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a rate; leave the key out for no limit")
    if value < 0:
        raise ValueError(
            f"{value} is negative; write 0 to block every new id, leave the key out for no limit"
        )
    return value


def address(value: object) -> Address:
    """Parse "host:port" or "[ipv6]:port". Raises ValueError otherwise."""
    host, port = split_host_port(value)
    if port is None:
        raise ValueError(f"{value!r} has no port; write {host}:PORT")
    return Address(host, port)


def split_host_port(value: object) -> tuple[str, int | None]:
    """Parse "host", "host:port", "[ipv6]" or "[ipv6]:port". The port is None when it is missing.

    Raises ValueError otherwise.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not an address; write host:port")
    text = value.strip()
    if "://" in text:
        raise ValueError(f"{value!r} is a URL; write host:port without a scheme")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{value!r} is not an address; write [::1]:9092")
        port_text = rest[1:] if rest else None
    elif text.count(":") > 1:
        raise ValueError(f"{value!r} is ambiguous; write an IPv6 address in brackets, as in [::1]:9092")
    else:
        host, colon, tail = text.partition(":")
        port_text = tail if colon else None
    if not host or any(character.isspace() or character in ",/@" for character in host):
        raise ValueError(f"{value!r} holds no valid host; write host:port")
    return host, None if port_text is None else port_number(port_text)


def port_number(value: object) -> int:
    """Parse a TCP port, 0 to 65535. Raises ValueError otherwise."""
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"{value!r} is not a port; write a number from 0 to 65535")
    return int(text)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on `host`. Of names, only localhost counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def node_id_list(value: object) -> tuple[int, ...]:
    """Parse node ids: a list of numbers and ranges, [0-5, 101-105], or the same as one string.

    Raises ValueError for anything else, an empty list, or a repeated id.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError(f"{value!r} is not a list of node ids; write for example [0-5, 101-105]")
    ids: list[int] = []
    for part in parts:
        ids.extend(_node_id_range(part))
    if not ids:
        raise ValueError("no node id in it; write for example [0-5], or leave node_ids out")
    repeated = sorted({node_id for node_id in ids if ids.count(node_id) > 1})
    if repeated:
        raise ValueError(f"node id {repeated[0]} is in it twice; write each once")
    return tuple(ids)


def _node_id_range(part: object) -> range:
    match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", str(part))
    if match is None or isinstance(part, bool):
        raise ValueError(f"{part!r} is not a node id or a range; write for example 3 or 101-105")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{part!r} runs backwards; write {last}-{first}")
    if last - first >= 60_000:
        raise ValueError(f"{part!r} needs more ports than there are; write the ids that exist")
    return range(first, last + 1)


def show_duration(milliseconds: int) -> str:
    """Format milliseconds in the largest unit that divides them: 3600000 as "1h"."""
    for unit in ("d", "h", "m", "s"):
        # 24h reads better than 1d next to a window of 1h.
        is_one_day = unit == "d" and milliseconds == _DURATION_MS["d"]
        if milliseconds and milliseconds % _DURATION_MS[unit] == 0 and not is_one_day:
            return f"{milliseconds // _DURATION_MS[unit]}{unit}"
    return f"{milliseconds}ms"


def show_size(size: int) -> str:
    """Format bytes in the largest unit that divides them: 104857600 as "100MiB"."""
    for unit in ("GiB", "GB", "MiB", "MB", "KiB", "kB"):
        if size and size % _SIZE_BYTES[unit] == 0:
            return f"{size // _SIZE_BYTES[unit]}{unit}"
    return f"{size}B"


def show_milli(thousandths: int) -> str:
    """Format thousandths as a number without trailing zeros: 100000 as "100", 2500 as "2.5"."""
    return f"{thousandths / 1_000:,.3f}".rstrip("0").rstrip(".")


def about_duration(milliseconds: float) -> str:
    """Round to one unit: 350 ms, 4 s, 1.2 s, 12 min, 3.5 h."""
    for from_ms, unit_ms, unit in ABOUT_DURATIONS:
        if milliseconds >= from_ms:
            value = milliseconds / unit_ms
            text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
            return f"{text} {unit}"
    return f"{milliseconds:.0f} ms"


def about_size(size: float) -> str:
    """Round bytes to one decimal unit (MB = 10^6): 850 bytes, 54.5 MB."""
    for unit in ("GB", "MB", "kB"):
        if size >= _SIZE_BYTES[unit]:
            return f"{size / _SIZE_BYTES[unit]:,.1f} {unit}"
    return f"{size:,.0f} bytes"


def number(value: float) -> str:
    """Format with thousands separators and at most one decimal, or two digits below 1: 1,000, 41.5, 0.25."""
    if 0 < abs(value) < 0.95:
        return f"{value:.2g}"
    return f"{value:,.1f}".removesuffix(".0")


def counted(value: float, one: str, many: str = "") -> str:
    """Format a number with its noun: 1 id, 4,812 ids."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def listed(names: Sequence[str], at_most: int = 2) -> str:
    """Join names: a, a and b, a, b and 3 more."""
    if len(names) <= 1:
        return "".join(names)
    left = len(names) - at_most
    return (
        f"{', '.join(names[: at_most if left > 0 else -1])} and {f'{left:,} more' if left > 0 else names[-1]}"
    )


def clock(wall_ms: int, zone: tzinfo | None = None) -> str:
    """Format a time of day: 14:02. `zone` None is the machine's."""
    return datetime.fromtimestamp(wall_ms / 1_000, zone).strftime("%H:%M")


def moment(wall_ms: int, zone: tzinfo | None = None) -> str:
    """Format date and time: 2026-11-21 14:02. `zone` None is the machine's."""
    return datetime.fromtimestamp(wall_ms / 1_000, zone).strftime("%Y-%m-%d %H:%M")


def printable(name: str) -> str:
    """Escape and cut an external name, so that it cannot control a terminal."""
    text = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in name
    )
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "\u2026"
