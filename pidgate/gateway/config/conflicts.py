"""Errors and warnings about several keys together: colliding ports, unreachable addresses."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pidgate.gateway.config.principal_rules import DEFAULT_RULES
from pidgate.gateway.config.settings import DEFAULT_CLIENT, MIN_THROTTLE_MS, ListenerSettings, Settings
from pidgate.gateway.config.source import KeyPath
from pidgate.gateway.config.token_file import TokenUnreadable, token_in
from pidgate.quota import settings as quota
from pidgate.units import WILDCARD_HOSTS, Address, is_loopback, show_duration, show_milli, show_size

Finding = tuple[KeyPath, str]
# Without node_ids the ids of the cluster are unknown. Most have 1-3; reserved.broker.max.id is 1000.
_LIKELY_NODES = 4
_POSSIBLE_NODES = 1_000
# Clients give up a request after request.timeout.ms, 30 s; a longer refusal looks like a dead broker.
_LONG_THROTTLE_MS = 20_000


def conflicts(settings: Settings) -> Iterator[Finding]:
    """Yield errors: (path, sentence with its remedy)."""
    for index, listener in enumerate(settings.listeners):
        yield from _listener_conflicts(listener, ("listeners", index))
    yield from _port_conflicts(settings)
    yield from _own_address_conflicts(settings)
    yield from _quota_conflicts(settings)
    yield from _tls_conflicts(settings)
    yield from _identity_conflicts(settings)
    if settings.reuse_port and not settings.events.enabled:
        yield (
            ("reuse_port",),
            "needs the events topic, through which gateways share a quota and refusals; write events: {enabled: true}",
        )
    limits = settings.limits
    if limits.buffered_total_bytes < limits.frame_bytes:
        yield (
            ("limits", "buffered_total"),
            f"is below one frame; write {show_size(limits.frame_bytes)} or more, or lower limits.frame",
        )


def _own_address_conflicts(settings: Settings) -> Iterator[Finding]:
    """Refuse bootstrap servers at which this gateway listens itself."""
    for server in settings.cluster.bootstrap_servers:
        if any(_is_own_address(server, listener) for listener in settings.listeners):
            yield (
                ("cluster", "bootstrap_servers"),
                f"{server} is this gateway's own listener; write the brokers' addresses",
            )


def _is_own_address(server: Address, listener: ListenerSettings) -> bool:
    host = listener.bind.host
    reaches_loopback = host in WILDCARD_HOSTS or is_loopback(host)
    advertised = None if listener.advertise is None else listener.advertise.host
    is_here = server.host in (host, advertised) or (reaches_loopback and is_loopback(server.host))
    return is_here and server.port == listener.bind.port


def _tls_conflicts(settings: Settings) -> Iterator[Finding]:
    for index, listener in enumerate(settings.listeners):
        if (tls := listener.tls) is None:
            continue
        path: KeyPath = ("listeners", index, "tls", "client_ca_file")
        if tls.client_auth != "none" and not tls.client_ca_file:
            yield (
                path,
                f"is missing; client_auth: {tls.client_auth} needs the CA of the clients' certificates",
            )
        if tls.client_auth == "none" and tls.client_ca_file:
            yield path, "has no effect: no client is asked for a certificate; add client_auth: required"
        if tls.client_auth == "none" and tls.ssl_principal_mapping_rules != DEFAULT_RULES:
            yield (
                ("listeners", index, "tls", "ssl_principal_mapping_rules"),
                "has no effect: no client is asked for a certificate; add client_auth: required",
            )
    tls_of_cluster = settings.cluster.tls
    if tls_of_cluster is not None and tls_of_cluster.given_key_file and not tls_of_cluster.cert_file:
        yield ("cluster", "tls", "cert_file"), "is missing; a key without a certificate is useless"


def _identity_conflicts(settings: Settings) -> Iterator[Finding]:
    identity = settings.cluster.upstream_identity
    if identity == "pass":
        return
    if settings.own_client is None:
        yield (
            ("cluster", "upstream_identity"),
            f"{identity} needs credentials: write own_client, a user of the brokers",
        )
    shows_certificates = any(listener.tls and listener.tls.identifies for listener in settings.listeners)
    if identity == "delegation_token" and not shows_certificates:
        yield (
            ("cluster", "upstream_identity"),
            "delegation_token has no effect: no listener asks clients for certificates; add tls.client_auth to one",
        )


def warnings(settings: Settings) -> Iterator[Finding]:
    """Yield warnings about valid but surprising settings: (path, sentence)."""
    for index, listener in enumerate(settings.listeners):
        yield from _listener_warnings(listener, ("listeners", index))
    yield from _open_range_warnings(settings)
    yield from _proxy_warnings(settings)
    yield from _memory_warnings(settings)
    yield from _token_warnings(settings)
    yield from _password_warnings(settings)
    if settings.reuse_port and settings.given_gateway_id:
        yield (
            ("gateway_id",),
            "names all gateways of this file alike; remove it, and each is named by its host and admin port",
        )
    ids = settings.quotas.producer_ids
    if ids.remember_ms < ids.window_ms:
        yield (
            ("quotas", "producer_ids", "remember"),
            f"is below the window: an id that pauses {show_duration(ids.remember_ms)} is charged again",
        )
    if ids.max_throttle_ms > _LONG_THROTTLE_MS:
        yield (
            ("quotas", "producer_ids", "max_throttle"),
            "is near or above the clients' request timeout (30s); 10s is safe",
        )


def _token_warnings(settings: Settings) -> Iterator[Finding]:
    """Warn only: a file may be checked where the token is missing, and the token is read again when needed."""
    if not settings.admin.token_file:
        if not is_loopback(settings.admin.bind.host):
            yield (
                ("admin", "token_file"),
                "is missing: /metrics and the quotas are only for the gateway's own user on this machine; write it, "
                "and give Prometheus the word in a file of the same name with .scrape at its end",
            )
        return
    path, file = ("admin", "token_file"), Path(settings.admin.token_file)
    try:
        token_in(file)
        others_read_it = file.stat().st_mode & 0o077
    except (OSError, TokenUnreadable) as error:
        yield path, f"holds no token yet ({error}): until it does, quotas can neither be read nor set there"
        return
    if others_read_it:
        yield path, f"can be read by other users of this machine; chmod 600 {file}"


def _password_warnings(settings: Settings) -> Iterator[Finding]:
    """Warn only: a secret mounted into a container is often readable for all of it."""
    sasl = settings.own_client
    if sasl is None:
        return
    try:
        is_readable_by_all = bool(Path(sasl.password_file).stat().st_mode & 0o004)
    except OSError:
        return  # reported when it is used to log in
    if is_readable_by_all:
        yield (
            ("own_client", "password_file"),
            f"can be read by every user of this machine; chmod 640 {sasl.password_file}",
        )


def _memory_warnings(settings: Settings) -> Iterator[Finding]:
    """Warn of state that does not survive a restart."""
    events, ids = settings.events, settings.quotas.producer_ids
    if events.enabled and events.retention_ms < ids.remember_ms:
        yield (
            ("events", "retention"),
            f"is below quotas.producer_ids.remember ({show_duration(ids.remember_ms)}): after a restart older ids "
            "are charged again",
        )
    enforces = "enforce" in (settings.quotas.mode, *(user.mode for user in settings.quotas.named().values()))
    if enforces and not events.enabled and settings.state_dir is None:
        yield (
            ("events", "enabled"),
            "with no topic and no state_dir nothing is remembered over a restart; write a state_dir, or true here",
        )


def _listener_conflicts(listener: ListenerSettings, path: KeyPath) -> Iterator[Finding]:
    advertise, ports = listener.advertise, listener.node_ports
    if listener.only_node is not None and ports is not None:
        yield (
            (*path, "node_ports"),
            "conflicts with only_node, which uses the port of bind; remove one of the two",
        )
    if listener.sni is not None:
        yield from _sni_conflicts(listener, path)
    elif advertise is None and listener.bind.host in WILDCARD_HOSTS:
        yield (
            (*path, "advertise"),
            f"is missing, and clients cannot connect to {listener.bind.host}; add the host they use",
        )
    if advertise and advertise.port and "{node_id}" not in advertise.host and listener.only_node is None:
        yield (
            (*path, "advertise"),
            f"gives all nodes the one address {advertise.host}:{advertise.port}; "
            "put {node_id} into the host, or leave the port out so that each node shows its own",
        )
    if (
        listener.only_node is not None
        and listener.bind.port == 0
        and (advertise is None or advertise.port is None)
    ):
        yield (
            (*path, "bind"),
            "has port 0, which cannot be advertised; write the port that clients connect to",
        )
    if ports is not None and ports.first + len(ports.node_ids) - 1 > 65_535:
        yield (*path, "node_ports", "first"), "leaves too few ports below 65536 for node_ids; lower it"


def _sni_conflicts(listener: ListenerSettings, path: KeyPath) -> Iterator[Finding]:
    sni = listener.sni
    assert sni is not None
    if listener.tls is None:
        yield (*path, "sni"), "needs tls, which carries the client's host name; write listeners.tls"
    if sni.host.count("{node_id}") != 1:
        yield (
            (*path, "sni"),
            f"{sni.host} has to hold {{node_id}} once, as in broker-{{node_id}}.kafka.example",
        )
    if listener.bind.port == 0 and sni.port is None:
        yield (
            (*path, "bind"),
            "has port 0, which cannot be advertised; write the port that clients connect to",
        )
    for key, given in (
        ("advertise", listener.advertise),
        ("node_ports", listener.node_ports),
        ("only_node", listener.only_node),
    ):
        if given is not None:
            yield (
                (*path, key),
                "conflicts with sni, which advertises all brokers at one port; remove one of the two",
            )


def _listener_warnings(listener: ListenerSettings, path: KeyPath) -> Iterator[Finding]:
    if listener.only_node is not None and "{node_id}" not in listener.advertise_host:
        yield (
            (*path, "advertise"),
            "shows one address for every broker, right only for a cluster of one; else put {node_id} into it",
        )


def _proxy_warnings(settings: Settings) -> Iterator[Finding]:
    """Warn of headers accepted from any address, and of the gateway's own clients, which send none."""
    for index, listener in enumerate(settings.listeners):
        if any(network.prefixlen == 0 for network in listener.proxy_protocol_from):
            yield (
                ("listeners", index, "proxy_protocol_from"),
                "lists every address: every client has to send a header, and may forge it; write your proxies'",
            )
    if settings.cluster.proxy_protocol and settings.events.enabled:
        yield (
            ("cluster", "proxy_protocol"),
            "is for clients' connections: those of the gateway to its own topics send no header, and a listener that "
            "demands one closes them; write events: {enabled: false} if yours does",
        )


def _open_range_warnings(settings: Settings) -> Iterator[Finding]:
    singles = [("admin.bind", settings.admin.bind)]
    singles += [(f"bind of listener {listener.name}", listener.bind) for listener in settings.listeners]
    for index, listener in enumerate(settings.listeners):
        first = listener.first_node_port
        if first is None or listener.node_ids:
            continue
        for what, address in singles:
            node_id = address.port - first
            if 0 <= node_id < _POSSIBLE_NODES and _same_interface(listener.bind_host, address.host):
                yield (
                    ("listeners", index, "node_ports", "first"),
                    f"a broker with node id {node_id} would need the port of {what}; "
                    "list node_ids if there may be one",
                )


def reserved_ports(listener: ListenerSettings) -> range:
    """Return the ports for brokers: of the node_ids, or of the likely number of brokers."""
    if listener.first_node_port is None:
        return range(0)
    count = len(listener.node_ids) or _LIKELY_NODES
    return range(listener.first_node_port, min(listener.first_node_port + count, 65_536))


def _claims(settings: Settings) -> Iterator[tuple[KeyPath, str, str, range]]:
    """Yield (path, name, host, ports) of every address on which the gateway listens."""
    for index, listener in enumerate(settings.listeners):
        path: KeyPath = ("listeners", index)
        yield (*path, "bind"), f"bind of listener {listener.name}", listener.bind.host, _single(listener.bind)
        what = f"node_ports of listener {listener.name}"
        yield (*path, "node_ports"), what, listener.bind.host, reserved_ports(listener)
    yield ("admin", "bind"), "admin.bind", settings.admin.bind.host, _single(settings.admin.bind)


def _single(address: Address) -> range:
    # Port 0 is any free port: it collides with none.
    return range(address.port, address.port + 1) if address.port else range(0)


def _port_conflicts(settings: Settings) -> Iterator[Finding]:
    claims = list(_claims(settings))
    for index, (path, what, host, ports) in enumerate(claims):
        for _, other_what, other_host, other_ports in claims[:index]:
            common = range(max(ports.start, other_ports.start), min(ports.stop, other_ports.stop))
            if common and _same_interface(host, other_host):
                yield (
                    path,
                    f"{what} needs port {_show(common)}, which {other_what} needs too; move one of them",
                )


def _same_interface(host: str, other: str) -> bool:
    return host == other or host in WILDCARD_HOSTS or other in WILDCARD_HOSTS


def _show(ports: range) -> str:
    return str(ports.start) if len(ports) == 1 else f"{ports.start}-{ports.stop - 1}"


def _quota_conflicts(settings: Settings) -> Iterator[Finding]:
    path: KeyPath = ("quotas", "producer_ids")
    ids = settings.quotas.producer_ids
    if ids.remember_ms < quota.LAYERS:
        yield (*path, "remember"), "is too short; write for example 24h, or window"
    if ids.max_throttle_ms < MIN_THROTTLE_MS:
        yield (
            (*path, "max_throttle"),
            f"is below the shortest throttle, {MIN_THROTTLE_MS}ms; write for example 10s",
        )
    if "" in settings.quotas.users:
        yield (
            ("quotas", "users", ""),
            "a user without a name; the quota of all other users is quotas.default",
        )
    if any("\0" in user for user in settings.quotas.users):
        yield (
            ("quotas", "users"),
            "a principal's name contains no NUL; unidentified users are in quotas.unidentified",
        )
    if settings.quotas.fuse is not None and settings.quotas.runtime_changes == "refused":
        yield (
            ("quotas", "fuse"),
            "changes modes at run time, and quotas.runtime_changes is refused; allow them, or remove the fuse",
        )
    yield from _client_conflicts(settings)
    yield from _client_rate_conflicts(settings)


def _client_rate_conflicts(settings: Settings) -> Iterator[Finding]:
    """Refuse rates of client ids that are no parts of their user's rate."""
    quotas = settings.quotas
    sections = [
        *((("quotas", "users", name), user) for name, user in quotas.users.items()),
        *((("quotas", "unidentified", name), user) for name, user in quotas.unidentified.items()),
    ]
    for path, user in sections:
        parts_milli = sum(user.client_rates_milli().values())
        if not user.client_rates_milli():
            continue
        if DEFAULT_CLIENT in user.client_rates_milli():
            yield (
                (*path, "clients", DEFAULT_CLIENT, "producer_ids_rate"),
                "is no rate of new producer ids: all other client ids share what the user's rate leaves",
            )
        rate_milli = user.producer_ids_rate_milli
        if rate_milli is None:
            rate_milli = quotas.default.producer_ids_rate_milli
        if rate_milli is None:
            yield (
                (*path, "producer_ids_rate"),
                "is missing: the rates of its client ids are parts of it; write the rate of all of them together",
            )
        elif parts_milli > rate_milli:
            yield (
                (*path, "clients"),
                f"have {show_milli(parts_milli)} new producer ids together, above the user's {show_milli(rate_milli)}, "
                "of which they are parts; raise producer_ids_rate or lower theirs",
            )
        redacted = {"user", "client_id"} & set(settings.events.redact)
        if settings.events.enabled and redacted:
            yield (
                ("events", "redact"),
                f"hides the {' and '.join(sorted(redacted))}, by which gateways find the account of a client id "
                f"({'.'.join(path)}.clients): remove it, or the rates of client ids",
            )


def _client_conflicts(settings: Settings) -> Iterator[Finding]:
    quotas = settings.quotas
    sections: list[tuple[KeyPath, Iterable[str]]] = [
        (("quotas",), quotas.clients),
        (("quotas", "default"), quotas.default.clients),
        *((("quotas", "users", name), user.clients) for name, user in quotas.users.items()),
        *((("quotas", "unidentified", name), user.clients) for name, user in quotas.unidentified.items()),
    ]
    for path, clients in sections:
        if "" in clients:
            # The empty client id means clients that send none.
            yield (
                (*path, "clients", ""),
                f"a client without an id; write {DEFAULT_CLIENT} for the quota of all other client ids",
            )
