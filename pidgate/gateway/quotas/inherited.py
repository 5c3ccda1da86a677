"""Quotas shared by accident: inherited by all users without a readable name, and by all without a login. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.config.source import dotted
from pidgate.quota.byte_quota import Kind, resolve_rate, throttles_bytes
from pidgate.quota.entities import ANONYMOUS, User, is_bounded, resolve, shown, unidentified
from pidgate.quota.settings import Quotas


class Missing(NamedTuple):
    """What a file misses."""

    key: str
    cause: str
    remedy: str = ""

    @property
    def text(self) -> str:
        return f"{self.cause}; {self.remedy}" if self.remedy else self.cause


def inherited_quotas(quotas: Quotas, mechanisms: Iterable[str]) -> Iterator[Missing]:
    """Yield what is missing where clients without a readable user share one inherited quota.

    `mechanisms`: those offered by the brokers. The brokers do not show whether any such client exists. PLAIN has
    none; OAUTHBEARER and SCRAM have few.
    """
    users = {mechanism: unidentified(mechanism) for mechanism in mechanisms if mechanism != "PLAIN"}
    shared = [name for name, user in users.items() if user not in quotas.users and _is_held(quotas, user)]
    if shared:
        yield Missing(
            "quotas.unidentified",
            f"has no {', '.join(shared)}: clients whose user cannot be read (Kerberos, opaque tokens, delegation "
            "tokens of unknown owner) share one quota per mechanism, that of quotas.default",
            "write a rate for each, or mode: observe",
        )


def closed_ports(settings: Settings) -> Iterator[Missing]:
    """Yield ports of brokers that stay closed after a restart, where the brokers want a login."""
    if settings.own_client is not None or settings.state_dir is not None:
        return
    for index, listener in enumerate(settings.listeners):
        if listener.first_node_port is not None and not listener.node_ids:
            yield Missing(
                dotted(("listeners", index, "node_ports", "node_ids")),
                "is missing, the brokers require a login, and there is neither state_dir nor own_client: after a "
                "restart the brokers' ports stay closed until a client has bootstrapped, and running producers wait",
                "write one of the three",
            )


def login_warnings(settings: Settings, quotas: Quotas, mechanisms: Sequence[str]) -> Iterator[Missing]:
    """Yield what the file misses, now that it is known whether the brokers want a login.

    `mechanisms`: those offered by the brokers; empty: they want no login.
    """
    if mechanisms and settings.events.enabled and settings.own_client is None:
        yield Missing(
            "own_client",
            f"is missing, and the brokers want a login ({', '.join(mechanisms)}): the gateway can neither write "
            "nor read its topics",
            "write mechanism, username and password_file",
        )
    if mechanisms:
        yield from closed_ports(settings)
    if mechanisms and any(one.requires_login is not False for one in settings.listeners):
        yield from inherited_quotas(quotas, mechanisms)
        return
    if any(one.tls is not None and one.tls.identifies for one in settings.listeners):
        return
    if ANONYMOUS not in quotas.users and _is_held(quotas, ANONYMOUS):
        yield Missing(
            "quotas",
            f"no client logs in here, so every client is the user {ANONYMOUS}: all applications together have the "
            "quota of one user, and one that spends it makes the others wait",
            f"write a rate for all of them under quotas.users.{ANONYMOUS}, and under clients there the part of each "
            "that must not wait for others, or mode: observe",
        )
    for user in quotas.users:
        if user != ANONYMOUS:
            yield Missing(
                f"quotas.users.{shown(user)}",
                f"never matches: no client logs in here, so every client is the user {ANONYMOUS}",
            )


def _is_held(quotas: Quotas, user: User) -> bool:
    """Return whether any request of the user may be refused or delayed."""
    quota = resolve(quotas, user)
    has_byte_rate = any(resolve_rate(quotas.bytes, kind, user, None) is not None for kind in Kind)
    return (quota.enforces and is_bounded(quotas, quota)) or (has_byte_rate and throttles_bytes(quotas, user))
