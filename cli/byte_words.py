"""Byte rates of a configuration in words, in the order in which Kafka looks at them (KIP-13's eight levels). PURE."""

from __future__ import annotations

from collections.abc import Iterator

from pidgate.quota.settings import DEFAULT, ByteEntity, ByteQuotas, ByteRates
from pidgate.units import show_size


def in_words(quotas: ByteQuotas) -> Iterator[str]:
    """Nothing when no byte rate is set."""
    if not quotas.rates:
        return
    window_s = (quotas.samples - 1) * quotas.sample_ms / 1000
    yield f"Bytes a second, over all brokers behind this gateway; {window_s:g} s worth may pass at once:"
    for entity in sorted(quotas.rates, key=_level):
        yield f"  {_who(entity)}: {_rates(quotas.rates[entity])}"


def _level(entity: ByteEntity) -> tuple[int, bool, str, str]:
    """Named users, then the default one, then client ids alone; within them, what is more exact comes first."""
    user, client_id = entity
    rank = 2 if user is None else 1 if user == DEFAULT else 0
    return rank, client_id is None, user or "", client_id or "\U0010ffff"


def _who(entity: ByteEntity) -> str:
    user, client_id = entity
    of_client = "each other client id" if client_id == DEFAULT else f"client id {client_id}"
    if user is None:
        return f"{of_client}, all users together"
    of_user = "each user not named" if user == DEFAULT else f"user {user}"
    return f"{of_user}, all client ids together" if client_id is None else f"{of_user}, {of_client}"


def _rates(rates: ByteRates) -> str:
    said = (("produces", rates.producer_byte_rate), ("fetches", rates.consumer_byte_rate))
    return ", ".join(f"{what} {show_size(rate)}/s" for what, rate in said if rate is not None)
