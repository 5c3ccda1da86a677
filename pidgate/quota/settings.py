"""Settings by an operator: quotas of users, shape of the producer id quota (KIP-936). PURE.

Frozen values, checked when they are made. Must not know a file format. Rates are integers in thousandths of a producer
id per window, so that every decision is computed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final


class Mode(StrEnum):
    """OBSERVE computes and publishes everything and refuses nothing; ENFORCE refuses."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


def rate_milli(rate: int | float | Fraction) -> int:
    """Return a `producer_ids_rate` in thousandths of an id per window.

    0 stays 0 (it blocks every new id); a positive rate never rounds down to 0, since that would block. Raises
    ValueError for a negative rate, NaN and infinity.
    """
    try:
        exact = Fraction(rate)
    except (OverflowError, ValueError) as problem:
        raise ValueError(f"a rate must be a finite number, not {rate}") from problem
    if exact < 0:
        raise ValueError(f"a rate must not be negative: {rate}")
    rounded = round(exact * 1000)
    return max(1, rounded) if exact > 0 else 0


LAYERS: Final = 4
"""A slice is a quarter of `remember`: an id in use is published once a slice, and its memory ends a quarter late."""
FALSE_POSITIVE_RATE: Final = 0.001
"""One new id in a thousand passes unpaid; one in ten thousand would take a quarter more memory."""
QUEUE: Final = 1_000
"""A user's ids in line: at 1,000 an hour the last one waits for an hour, and clients give up after minutes."""
STICKY_ENTRIES: Final = 20_000
"""Refused partitions of one user: three connections at their own limit of 6,000."""


@dataclass(frozen=True, slots=True)
class ProducerIdSettings:
    """The producer id quota's shape, the same for every user. Durations in milliseconds.

    window_ms            the time a rate is counted over
    burst                the bucket's capacity in windows of the rate
    remember_ms          how long an id that was used is known, and free of charge
    layers               slices that `remember_ms` is divided into
    false_positive_rate  total over all live layers of a user: the share of new ids admitted unpaid
    transactional        whether ids of transactional requests may be refused
    max_throttle_ms      cap of one refusal's throttle_time_ms; below the 30 s request timeout of clients
    max_live_ids         bounds the memory of all filters together (about 2.6 bytes an id and slice of use)
    queue                ids of one user that may wait in line
    sticky_entries       exact refusal entries of one user; when they are used up its connections are closed
    refuse_init          whether a user without tokens is refused new ids (InitProducerId) as well
    """

    window_ms: int = 3_600_000
    burst: Fraction = Fraction(1)
    remember_ms: int = 86_400_000
    layers: int = LAYERS
    false_positive_rate: float = FALSE_POSITIVE_RATE
    transactional: Mode = Mode.OBSERVE
    max_throttle_ms: int = 10_000
    max_live_ids: int = 10_000_000
    queue: int = QUEUE
    sticky_entries: int = STICKY_ENTRIES
    refuse_init: bool = False

    def __post_init__(self) -> None:
        _require(self.window_ms >= 1, "window_ms must be at least 1")
        _require(self.burst > 0, "burst must be above 0")
        # 12 slices need 13 layers, which leaves room for growth below the 16 a user may have.
        _require(1 <= self.layers <= 12, "layers must be 1 to 12")
        _require(self.remember_ms >= self.layers, "remember_ms must be at least one millisecond a layer")
        _require(0 < self.false_positive_rate < 1, "false_positive_rate must lie between 0 and 1")
        _require(self.max_throttle_ms >= 100, "max_throttle_ms must be at least 100")
        _require(self.max_live_ids >= 1, "max_live_ids must be at least 1")
        _require(self.queue >= 0, "queue must not be negative")
        _require(self.sticky_entries >= 1, "sticky_entries must be at least 1")

    @property
    def slice_ms(self) -> int:
        """Length of one slice; slices are aligned to multiples of it, alike for all users."""
        return self.remember_ms // self.layers


@dataclass(frozen=True, slots=True)
class UserQuota:
    """Quota of one user or of the default user; None: not set.

    `transactional_ids_rate_milli`: new transactional ids per window, in thousandths, as the rate of producer ids.
    `grace_milli`: unseen ids admitted uncharged, in thousandths of what the rate admits in a window. None: those of a
    cold start's grace. `producer_states_rate_milli`: new pairs of producer id and partition per window, which are
    charged and never refused. `client_rates_milli`: parts of the rate reserved for client ids.
    """

    producer_ids_rate_milli: int | None = None
    mode: Mode | None = None
    exempt: bool = False
    exempt_from_bytes: bool = False
    transactional_ids_rate_milli: int | None = None
    grace_milli: int | None = None
    client_rates_milli: Mapping[str, int] = field(default_factory=dict)
    producer_states_rate_milli: int | None = None

    def __post_init__(self) -> None:
        for name in ("producer_ids_rate_milli", "transactional_ids_rate_milli", "producer_states_rate_milli"):
            rate = getattr(self, name)
            if rate is not None and rate < 0:
                raise ValueError(f"{name} must not be negative")

    @classmethod
    def per_window(
        cls, rate: int | float | Fraction | None = None, *, mode: Mode | None = None, exempt: bool = False
    ) -> UserQuota:
        """Make one from a rate in ids per window, as people write it."""
        return cls(None if rate is None else rate_milli(rate), mode, exempt)


NOT_SET: Final = UserQuota()
"""The quota of a user without settings."""


ByteEntity = tuple[str | None, str | None]
"""(user, client id) of a byte rate (KIP-13's eight levels). DEFAULT: each one that is not named. None: the rate is for
all users together, or for all client ids together.
"""

DEFAULT: Final = ""
"""No user has this name, and an empty client id has the rates of client ids that are not named."""


@dataclass(frozen=True, slots=True)
class ByteRates:
    """Bytes per second of one entity; None: not set."""

    producer_byte_rate: int | None = None
    consumer_byte_rate: int | None = None

    def __post_init__(self) -> None:
        for rate in (self.producer_byte_rate, self.consumer_byte_rate):
            _require(rate is None or rate > 0, "a byte rate must be above 0")


@dataclass(frozen=True, slots=True)
class ByteQuotas:
    """Byte rates by entity, and their window: `samples` of `sample_ms`, Kafka's quota.window.num and
    quota.window.size.seconds.

    at_gateway: byte rates of users that are set at run time are kept here, not by the brokers
    """

    samples: int = 11
    sample_ms: int = 1_000
    rates: Mapping[ByteEntity, ByteRates] = field(default_factory=dict)
    at_gateway: bool = False

    def __post_init__(self) -> None:
        _require(self.samples >= 2, "samples must be at least 2")
        _require(self.sample_ms >= 1, "sample_ms must be at least 1")
        _require((None, None) not in self.rates, "a byte rate is for a user, a client id, or both")


@dataclass(frozen=True, slots=True)
class Quotas:
    """Everything in force at one moment. It is replaced as a whole, never changed.

    `help_url` is shown in the error message of a refusal; empty: nothing is shown. `fuse`: producer states that a
    broker has room for; None: no fuse.
    """

    mode: Mode = Mode.OBSERVE
    producer_ids: ProducerIdSettings = field(default_factory=ProducerIdSettings)
    default: UserQuota = field(default_factory=UserQuota)
    users: Mapping[str, UserQuota] = field(default_factory=dict)
    cluster_rate_milli: int | None = None
    fuse: int | None = None
    help_url: str = ""
    bytes: ByteQuotas = field(default_factory=ByteQuotas)

    def __post_init__(self) -> None:
        if self.cluster_rate_milli is not None and self.cluster_rate_milli < 0:
            raise ValueError("cluster_rate_milli must not be negative")


class QuotasHolder:
    """The quotas in force of one gateway. A reader compares `version` with the last one it has seen."""

    __slots__ = ("value", "version")

    def __init__(self, value: Quotas) -> None:
        self.value = value
        self.version = 0

    def replace(self, value: Quotas) -> None:
        """Put these quotas in force."""
        self.value = value
        self.version += 1


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
