"""server.properties of a node, and what the specification refuses."""

from pathlib import Path

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


def test_values_are_escaped_for_java() -> None:
    assert render({"a": "b\\c\nd", "e": "f"}) == "a=b\\\\c\\nd\ne=f\n"
