"""server.properties of one node: small, fast, and complete for every client API."""

from collections.abc import Mapping
from pathlib import Path

from tools.sandbox.spec import (
    CONTROLLER,
    PLAINTEXT,
    PROXIED,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    SUPER_USER,
    ClusterSpec,
    Tls,
)

CONTROLLER_HOST = "127.0.0.1"

# Footprint: such a broker starts in about 1.5 s and runs in a heap of 96 MB.
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "2",
    # Otherwise the controller writes a record every half second, a third of an idle broker's load.
    "metadata.max.idle.interval.ms": "0",
}

# No unintended delays in tests.
_PROMPT = {
    "auto.create.topics.enable": "false",
    # Handmade frames have a fixed timestamp, and retention would delete them half a minute after the start.
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
}

_SINGLE_COPIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def server_properties(
    spec: ClusterSpec,
    *,
    node_id: int,
    ports: Mapping[str, int],
    controller_ports: Mapping[int, int],
    directory: Path,
) -> dict[str, str]:
    """Return all properties of the node; `ports` by listener name, `controller_ports` by node id."""
    bind = spec.bind_address()
    listeners = spec.client_listeners
    advertised = {**ports, PROXIED: spec.proxied_port}
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter}@{CONTROLLER_HOST}:{port}" for voter, port in controller_ports.items()
        ),
        "listeners": ",".join(
            [f"{name}://{bind}:{ports[name]}" for name in listeners]
            + [f"{CONTROLLER}://{CONTROLLER_HOST}:{controller_ports[node_id]}"]
        ),
        "advertised.listeners": ",".join(
            f"{name}://{spec.advertised_host}:{advertised[name]}" for name in listeners
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{spec.protocol(name)}" for name in (*listeners, CONTROLLER)
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAINTEXT,
        "log.dirs": str(directory / "data"),
        **_SMALL,
        **_PROMPT,
        **_SINGLE_COPIES,
    }
    if spec.sasl:
        properties |= _sasl(spec)
    if spec.tls is not None:
        properties |= _tls(spec.tls)
    if spec.acl:
        properties |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
        }
    return properties | dict(spec.properties)


def _sasl(spec: ClusterSpec) -> dict[str, str]:
    accounts = " ".join(f'user_{name}="{password}"' for name, password in spec.users.items())
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    logins = {"plain": plain, "scram-sha-256": scram, "scram-sha-512": scram}
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **{
            f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config": login
            for listener in spec.client_listeners
            if spec.protocol(listener) in (SASL_PLAINTEXT, SASL_SSL)
            for mechanism, login in logins.items()
        },
        "delegation.token.secret.key": "a-secret-of-the-sandbox",
    }


def _tls(tls: Tls) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls.key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls.ca_file),
        f"listener.name.{SSL.lower()}.ssl.client.auth": tls.client_auth,
    }


def scram_arguments(spec: ClusterSpec) -> list[str]:
    """Return the StorageTool arguments that create the SCRAM users."""
    if not spec.sasl:
        return []
    return [
        argument
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in spec.users.items()
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def render(properties: Mapping[str, str]) -> str:
    """Return a Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
