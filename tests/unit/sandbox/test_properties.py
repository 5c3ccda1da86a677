"""server.properties of a node, and what the specification refuses."""

from pathlib import Path

import pytest

from tools.sandbox.errors import SandboxError
from tools.sandbox.properties import render, scram_arguments, server_properties
from tools.sandbox.spec import ClusterSpec

PORTS = {"PLAINTEXT": 1000, "SASL_PLAINTEXT": 1001, "PROXIED": 1002}


def properties_of(spec: ClusterSpec) -> dict[str, str]:
    return server_properties(
        spec, node_id=5, ports=PORTS, controller_ports={1: 2001, 5: 2005}, directory=Path("/d")
    )


def test_listeners_are_bound_and_advertised_by_the_wanted_host() -> None:
    properties = properties_of(ClusterSpec(node_ids=(1, 5), advertised_host="127.66.77.88"))
    assert properties["node.id"] == "5"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:2001,5@127.0.0.1:2005"
    assert properties["listeners"] == "PLAINTEXT://127.66.77.88:1000,CONTROLLER://127.0.0.1:2005"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.66.77.88:1000"
    assert properties["log.dirs"] == "/d/data"
    assert not any("sasl" in key for key in properties)


def test_a_host_may_be_a_name_of_the_loopback_address() -> None:
    properties = properties_of(ClusterSpec(node_ids=(1, 5), advertised_host="localhost"))
    assert properties["listeners"].startswith("PLAINTEXT://127.0.0.1:1000,")
    assert properties["advertised.listeners"] == "PLAINTEXT://localhost:1000"


def test_sasl_stands_beside_plaintext() -> None:
    spec = ClusterSpec(node_ids=(1, 5), sasl=True, users={"eve": "pass"})
    properties = properties_of(spec)
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1000,SASL_PLAINTEXT://127.0.0.1:1001"
    assert 'user_eve="pass"' in properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert scram_arguments(spec) == [
        *("--add-scram", "SCRAM-SHA-256=[name=eve,password=pass]"),
        *("--add-scram", "SCRAM-SHA-512=[name=eve,password=pass]"),
    ]
    assert scram_arguments(ClusterSpec()) == []


def test_a_listener_behind_a_proxy_names_the_port_of_the_proxy() -> None:
    properties = properties_of(ClusterSpec(node_ids=(1, 5), proxied_port=3000))
    listeners = properties["listeners"].split(",")
    assert listeners[:2] == ["PLAINTEXT://127.0.0.1:1000", "PROXIED://127.0.0.1:1002"]
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1000,PROXIED://127.0.0.1:3000"
    protocols = "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert properties["listener.security.protocol.map"] == protocols
    with_login = properties_of(ClusterSpec(node_ids=(1, 5), proxied_port=3000, sasl=True))
    assert "PROXIED:SASL_PLAINTEXT" in with_login["listener.security.protocol.map"].split(",")
    modules = [
        with_login[f"listener.name.{name}.plain.sasl.jaas.config"] for name in ("sasl_plaintext", "proxied")
    ]
    assert modules[0] == modules[1]


def test_the_callers_properties_have_the_last_word() -> None:
    spec = ClusterSpec(node_ids=(1, 5), acl=True, properties={"num.io.threads": "8", "super.users": "User:x"})
    properties = properties_of(spec)
    assert properties["num.io.threads"] == "8"
    assert properties["super.users"] == "User:x"
    assert properties["authorizer.class.name"].endswith("StandardAuthorizer")


def test_values_are_escaped_for_java() -> None:
    assert render({"a": "b\\c\nd", "e": "f"}) == "a=b\\\\c\\nd\ne=f\n"


def test_ids_count_the_nodes() -> None:
    assert ClusterSpec(nodes=3).node_ids == (1, 2, 3)
    assert ClusterSpec(node_ids=(1, 5, 102)).nodes == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"node_ids": (1, 1)}, "must differ"),
        ({"nodes": 2, "node_ids": (1, 2, 3)}, "2 nodes but 3 node ids"),
        ({"nodes": 0}, "needs a node"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        ClusterSpec(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "message"),
    [("broker.real.invalid", "does not resolve"), ("0.0.0.0", "only loopback addresses")],
)
def test_a_host_that_brokers_could_not_use_is_refused(host: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        ClusterSpec(advertised_host=host).bind_address()
