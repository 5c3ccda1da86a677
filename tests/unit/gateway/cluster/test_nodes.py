"""Real addresses learnt, advertised ones shown."""

import pytest

from pidgate.gateway.cluster.nodes import NodePorts, Nodes
from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import ListenerSettings

BOOTSTRAP = [("k1", 9092), ("k2", 9092), ("k3", 9092)]


def listener(text: str) -> ListenerSettings:
    return parse(f"cluster: {{bootstrap_servers: [k1:9092]}}\nlisteners:\n  - {text}\n").listeners[0]


@pytest.mark.parametrize(
    ("name", "node_id"),
    [
        ("broker-5.kafka.example", 5),
        ("BROKER-105.Kafka.Example", 105),
        ("broker-0.kafka.example", 0),
        ("broker-05.kafka.example", None),  # one name for each node
        ("broker-.kafka.example", None),
        ("broker-5x.kafka.example", None),
        ("broker-\u0665.kafka.example", None),
        ("broker-99999999999.kafka.example", None),
        ("broker-.example", None),
        ("kafka.example", None),
        ("", None),
    ],
)
def test_a_node_is_known_by_the_name_that_is_shown_for_it(name: str, node_id: int | None) -> None:
    ports = NodePorts(
        listener("{bind: '0.0.0.0:9292', sni: 'broker-{node_id}.kafka.example:9093', tls: {cert_file: c}}")
    )
    assert ports.node_named(name) == node_id
    assert ports.advertised_address(7) == ("broker-7.kafka.example", 9093)
    assert ports.port_of(7) is None


def test_a_new_node_is_announced_once_and_a_moved_one_is_followed() -> None:
    nodes = Nodes(BOOTSTRAP)
    announced: list[int] = []
    nodes.on_new_node = announced.append
    nodes.learn_node(5, "k5", 9092)
    nodes.learn_node(5, "k5", 9092)
    nodes.learn_node(5, "elsewhere", 9192)
    assert announced == [5]
    assert nodes.candidate_addresses(5) == [("elsewhere", 9192)]


def test_an_unknown_node_leads_to_the_bootstrap_servers_in_turn() -> None:
    nodes = Nodes(BOOTSTRAP)
    firsts = [nodes.candidate_addresses(7)[0] for _ in range(3)]
    assert sorted(firsts) == sorted(BOOTSTRAP)
    assert sorted(nodes.candidate_addresses(None)) == sorted(BOOTSTRAP)


def test_a_node_that_refuses_is_forgotten_until_it_is_learnt_again() -> None:
    nodes = Nodes(BOOTSTRAP)
    nodes.learn_node(5, "k5", 9092)
    nodes.forget_address(5, ("k5", 9092))
    assert len(nodes.candidate_addresses(5)) == 3
    announced: list[int] = []
    nodes.on_new_node = announced.append
    nodes.learn_node(5, "k5", 9095)
    assert announced == [5]
    assert nodes.candidate_addresses(5) == [("k5", 9095)]


@pytest.mark.parametrize(
    ("text", "node_id", "expected"),
    [
        ("{bind: 0.0.0.0:9292, advertise: gw.example, node_ports: {first: 9300}}", 3, ("gw.example", 9303)),
        (
            '{bind: 0.0.0.0:9292, advertise: gw.example, node_ports: {first: 9300, node_ids: ["0-2", 101]}}',
            101,
            ("gw.example", 9303),
        ),
        (
            '{bind: 0.0.0.0:9292, advertise: "gw-{node_id}.example:9092", only_node: 1}',
            7,
            ("gw-7.example", 9092),
        ),
        (
            '{bind: 0.0.0.0:9292, advertise: "gw-{node_id}.example", node_ports: {first: 9300}}',
            2,
            ("gw-2.example", 9302),
        ),
    ],
)
def test_what_clients_are_shown(text: str, node_id: int, expected: tuple[str, int]) -> None:
    assert NodePorts(listener(text)).advertised_address(node_id) == expected


def test_a_node_without_a_port_is_shown_at_the_bootstrap_port_never_at_its_own_address() -> None:
    ports = NodePorts(
        listener('{bind: 0.0.0.0:9292, advertise: gw, node_ports: {first: 9300, node_ids: ["0-2"]}}')
    )
    assert ports.port_of(55) is None
    assert ports.advertised_address(55) == ("gw", 9292)


def test_a_sidecar_opens_no_port_but_its_own() -> None:
    ports = NodePorts(listener('{bind: 0.0.0.0:9092, advertise: "gw-{node_id}.example:9092", only_node: 4}'))
    assert ports.port_of(4) == 9092
    assert ports.port_of(5) is None
