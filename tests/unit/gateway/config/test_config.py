"""The configuration file: what is accepted, and that every error names its line and the remedy."""

from fractions import Fraction
from pathlib import Path

import pytest

from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.config import conflicts, loading
from pidgate.gateway.config.loading import ConfigError, Settings
from pidgate.gateway.config.source import dotted
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, ProducerIdSettings, UserQuota
from pidgate.units import Address

MINIMAL = """\
cluster: {bootstrap_servers: [127.0.0.1:19092]}
listeners:
  - {bind: 127.0.0.1:9292, advertise: "127.0.0.1", node_ports: {first: 9300}}
quotas:
  mode: enforce
  default: {producer_ids_rate: 1000}
  users:
    alice: {producer_ids_rate: 100}
admin: {bind: 127.0.0.1:9290}
"""
CLUSTER = "cluster: {bootstrap_servers: [127.0.0.1:19092]}\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loading.parse(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def warnings_of(settings: Settings) -> list[str]:
    return [f"{dotted(path)}: {text}" for path, text in conflicts.warnings(settings)]


def test_the_minimal_file_works_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "pidgate.yaml"
    file.write_text(MINIMAL)

    settings = loading.load(file)

    assert settings.cluster.bootstrap_servers == (Address("127.0.0.1", 19092),)
    listener = settings.listeners[0]
    assert (listener.bind, listener.first_node_port) == (Address("127.0.0.1", 9292), 9300)
    quotas = settings.to_quotas()
    assert quotas.mode is Mode.ENFORCE
    assert quotas.default == UserQuota(1_000_000)
    assert dict(quotas.users) == {"alice": UserQuota(100_000)}
    assert quotas.producer_ids == ProducerIdSettings()
    assert settings.admin.bind == Address("127.0.0.1", 9290)
    assert warnings_of(settings) == []


def test_one_file_serves_several_gateways(tmp_path: Path) -> None:
    file = tmp_path / "pidgate.yaml"
    file.write_text(CLUSTER + "admin: {bind: 127.0.0.1:1, writable: true}\nstate_dir: /here")

    settings = loading.load(file, {("admin", "bind"): "127.0.0.1:2", ("state_dir",): "/there"})

    assert (str(settings.admin.bind), settings.admin.writable) == ("127.0.0.1:2", True)
    assert settings.state_dir == "/there"
    assert settings.gateway_id.endswith(":2")
    file.write_text(CLUSTER)
    assert loading.load(file, {("state_dir",): "/there"}).state_dir == "/there"
    with pytest.raises(ConfigError, match=r"^--admin: 'nowhere'"):
        loading.load(file, {("admin", "bind"): "nowhere"})
    file.write_text(CLUSTER + "admin: nonsense")
    with pytest.raises(ConfigError, match=r"pidgate.yaml:\d+: admin: .*not a section"):
        loading.load(file, {("admin", "bind"): "127.0.0.1:2"})


def test_one_gateway_id_for_several_gateways_is_warned_of() -> None:
    (warning,) = warnings_of(loading.parse(CLUSTER + "gateway_id: here\nreuse_port: true"))
    assert "names all gateways of this file alike" in warning


def test_every_key_of_the_producer_id_quota_reaches_the_quota_package() -> None:
    settings = loading.parse(
        CLUSTER
        + """\
quotas:
  producer_ids: {window: 30m, burst: 0.1, remember: window, transactional: enforce, max_throttle: 5s,
    max_live_ids: 1000}
  cluster_producer_ids_rate: 20.5
  help_url: https://wiki.example/ids
  default: {producer_ids_rate: null}
  users:
    no: {mode: enforce, producer_ids_rate: 0, owner: team}
    12: {exempt: [producer_ids]}
    bob:
"""
    )
    quotas = settings.to_quotas()

    assert quotas.producer_ids == ProducerIdSettings(
        window_ms=1_800_000,
        burst=Fraction(1, 10),
        remember_ms=1_800_000,
        transactional=Mode.ENFORCE,
        max_throttle_ms=5_000,
        max_live_ids=1_000,
    )
    assert quotas.cluster_rate_milli == 20_500
    assert quotas.help_url == "https://wiki.example/ids"
    assert quotas.default == UserQuota(None)
    # YAML 1.1 would make False of `no` and a number of 12.
    assert dict(quotas.users) == {
        "no": UserQuota(0, Mode.ENFORCE),
        "12": UserQuota(None, None, exempt=True),
        "bob": UserQuota(),
    }


def test_every_byte_rate_reaches_the_quota_package_under_its_entity() -> None:
    settings = loading.parse(
        CLUSTER
        + """\
quotas:
  default:
    producer_byte_rate: 10MB
    clients: {mirror: {consumer_byte_rate: 1MiB}, <default>: {producer_byte_rate: 5}}
  users:
    alice: {producer_byte_rate: 2MB, consumer_byte_rate: 4MB}
    bob:
      clients: {etl: {producer_byte_rate: 7}, quiet: {}, <default>: {consumer_byte_rate: 8}}
      exempt: [bytes]
  clients: {kcat: {consumer_byte_rate: 9}, <default>: {producer_byte_rate: 10}}
"""
    )
    quotas = settings.to_quotas()

    assert quotas.bytes == ByteQuotas(
        rates={
            ("", None): ByteRates(10_000_000, None),
            ("", "mirror"): ByteRates(None, 2**20),
            ("", ""): ByteRates(5, None),
            ("alice", None): ByteRates(2_000_000, 4_000_000),
            ("bob", "etl"): ByteRates(7, None),
            ("bob", ""): ByteRates(None, 8),
            (None, "kcat"): ByteRates(None, 9),
            (None, ""): ByteRates(10, None),
        },
        at_gateway=True,
    )
    assert quotas.users["bob"] == UserQuota(exempt_from_bytes=True)


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = """\
cluster: {bootstrap_servers: []}
listeners:
  - bind: 127.0.0.1:9292
    advertize: gw
    node_ports: {first: 9300, node_ids: [0-5, 101-105, 3]}
quotas:
  mod: enforce
  default: {producer_ids_rate: .nan}
  users:
    alice:
      producer_ids_rate: lots
      owner: 3
    no: {exempt: [byte]}
    mode: {rat: 3}
limits: {frame: 1 furlong}
drain_timeout: 25
log_level: loud
"""
    assert problems_of(text) == [
        "f.yaml:1: cluster.bootstrap_servers: [] is empty; write at least one",
        "f.yaml:4: listeners[0].advertize: is not a known key; did you mean advertise?",
        "f.yaml:5: listeners[0].node_ports.node_ids: node id 3 is in it twice; write each once",
        "f.yaml:7: quotas.mod: is not a known key; did you mean mode?",
        "f.yaml:8: quotas.default.producer_ids_rate: nan is not a rate; leave the key out for no limit",
        "f.yaml:11: quotas.users.alice.producer_ids_rate: 'lots' is not a number; "
        "write for example 100, without quotes or unit",
        "f.yaml:12: quotas.users.alice.owner: 3 is not text; put it in quotes",
        "f.yaml:13: quotas.users.no.exempt[0]: 'byte' is not possible here; write 'producer_ids' or 'bytes'",
        "f.yaml:14: quotas.users.mode.rat: is not a known key; "
        "remove it (known here: producer_byte_rate, consumer_byte_rate, producer_ids_rate, transactional_ids_rate, "
        "producer_states_rate, clients, mode, owner, exempt)",
        "f.yaml:15: limits.frame: '1 furlong' is not a size; write for example 65536, 64KiB, 100MB or 100MiB",
        "f.yaml:16: drain_timeout: 25 has no unit; write 25s, 25ms, 25m or 25h",
        "f.yaml:17: log_level: 'loud' is not possible here; write 'debug', 'info', 'warning' or 'error'",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "cluster: {bootstrap_servers: [k1:9092, gateway.example:9092]}\n"
            "listeners: [{bind: 0.0.0.0:9092, advertise: gateway.example, node_ports: {first: 9300}}]",
            "f.yaml:1: cluster.bootstrap_servers: gateway.example:9092 is this gateway's own listener; write the "
            "brokers' addresses",
        ),
        ("", "f.yaml:1: cluster: is missing; add cluster: {bootstrap_servers: [host:9092]}"),
        ("- a\n- b", "f.yaml:1: ['a', 'b'] is not a section; write keys and values below it"),
        (
            "cluster: {bootstrap_servers: host:9092}",
            "f.yaml:1: cluster.bootstrap_servers: 'host:9092' is not a list; "
            "write it in brackets, as in [a, b]",
        ),
        (
            "cluster:\n  bootstrap_servers:\n    - a:1\n    - PLAINTEXT://a:1",
            "f.yaml:4: cluster.bootstrap_servers[1]: 'PLAINTEXT://a:1' is a URL; "
            "write host:port without a scheme",
        ),
        (
            "cluster: {bootstrap_servers: ['::1:9092']}",
            "f.yaml:1: cluster.bootstrap_servers[0]: '::1:9092' is ambiguous; "
            "write an IPv6 address in brackets, as in [::1]:9092",
        ),
        (
            CLUSTER + "quotas: {default: {producer_ids_rate: -1}}",
            "f.yaml:2: quotas.default.producer_ids_rate: -1 is negative; "
            "write 0 to block every new id, leave the key out for no limit",
        ),
        (
            CLUSTER + "quotas: {producer_ids: {burst: .nan}}",
            "f.yaml:2: quotas.producer_ids.burst: nan: Input should be a finite number",
        ),
        (
            CLUSTER + "quotas: {producer_ids: {window: 0s}}",
            "f.yaml:2: quotas.producer_ids.window: must be above 0; write for example 10s",
        ),
        (
            CLUSTER + "quotas: {producer_ids: {max_throttle: 99ms}}",
            "f.yaml:2: quotas.producer_ids.max_throttle: is below the shortest throttle, 100ms; "
            "write for example 10s",
        ),
        (
            CLUSTER + "quotas: {producer_ids: {transactional: enforced}}",
            "f.yaml:2: quotas.producer_ids.transactional: 'enforced' is not possible here; "
            "write 'observe' or 'enforce'",
        ),
        (
            CLUSTER + "quotas: {clients: {'': {producer_byte_rate: 1MB}}}",
            "f.yaml:2: quotas.clients.: a client without an id; "
            "write <default> for the quota of all other client ids",
        ),
        (
            CLUSTER
            + "quotas: {users: {a: {producer_ids_rate: 9, clients: {<default>: {producer_ids_rate: 1}}}}}",
            "f.yaml:2: quotas.users.a.clients.<default>.producer_ids_rate: is no rate of new producer ids: "
            "all other client ids share what the user's rate leaves",
        ),
        (
            CLUSTER + "quotas: {fuse: 1000, runtime_changes: refused}",
            "f.yaml:2: quotas.fuse: changes modes at run time, and quotas.runtime_changes is refused; "
            "allow them, or remove the fuse",
        ),
        (
            CLUSTER + "quotas: {default: {consumer_byte_rate: 1MB/s}}",
            "f.yaml:2: quotas.default.consumer_byte_rate: '1MB/s' is not a size; "
            "write for example 65536, 64KiB, 100MB or 100MiB",
        ),
        (
            CLUSTER + "workers: 2",
            "f.yaml:2: workers: is not a key: a gateway is one process; for more cores remove it, write reuse_port: "
            "true, and start several gateways with this file, each with its own --admin and --state-dir",
        ),
        (
            CLUSTER + "reuse_port: true\nevents: {enabled: false}",
            "f.yaml:2: reuse_port: needs the events topic, through which gateways share a quota and refusals; "
            "write events: {enabled: true}",
        ),
        (
            CLUSTER + "limits: {frame: 100MB, buffered_total: 1MiB}",
            "f.yaml:2: limits.buffered_total: is below one frame; write 100MB or more, or lower limits.frame",
        ),
        (
            "admin: {}\nadmin: {}",
            "f.yaml:2: admin: is written twice (first in line 1); keep one",
        ),
    ],
)
def test_an_error_names_the_line_and_the_remedy(text: str, problem: str) -> None:
    assert problems_of(text) == [problem]


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        (
            "[{bind: 0.0.0.0:9292}]",
            "f.yaml:2: listeners[0].advertise: is missing, and clients cannot connect to 0.0.0.0; "
            "add the host they use",
        ),
        (
            "[{advertise: 'gw:9092'}]",
            "f.yaml:2: listeners[0].advertise: gives all nodes the one address gw:9092; "
            "put {node_id} into the host, or leave the port out so that each node shows its own",
        ),
        (
            "[{advertise: 'gw-{node}.example'}]",
            "f.yaml:2: listeners[0].advertise: 'gw-{node}.example' holds an unknown placeholder; "
            "the only one is {node_id}",
        ),
        (
            "[{only_node: 3, advertise: 'gw-{node_id}:9092', node_ports: {first: 9300}}]",
            "f.yaml:2: listeners[0].node_ports: conflicts with only_node, which uses the port of bind; "
            "remove one of the two",
        ),
        (
            "[{proxy_protocol_from: [10.0.0.5, 10.1.0.5/16]}]",
            "f.yaml:2: listeners[0].proxy_protocol_from: 10.1.0.5/16 has host bits set; "
            "write addresses of proxies, or networks, for example [10.0.0.5, 10.1.0.0/16]",
        ),
        (
            "[{only_node: 3, bind: '127.0.0.1:0', advertise: 'gw-{node_id}'}]",
            "f.yaml:2: listeners[0].bind: has port 0, which cannot be advertised; "
            "write the port that clients connect to",
        ),
        (
            "[{bind: 127.0.0.1:9302, node_ports: {first: 9300, node_ids: [7, 9, 11]}}]",
            "f.yaml:2: listeners[0].node_ports: node_ports of listener 127.0.0.1:9302 needs port 9302, "
            "which bind of listener 127.0.0.1:9302 needs too; move one of them",
        ),
        (
            "[{node_ports: {first: 9300, node_ids: [0-9]}},"
            " {bind: 127.0.0.1:9293, node_ports: {first: 9308, node_ids: [0-9]}}]",
            "f.yaml:2: listeners[1].node_ports: node_ports of listener 127.0.0.1:9293 needs port 9308-9309, "
            "which node_ports of listener 127.0.0.1:9292 needs too; move one of them",
        ),
        (
            "[{node_ports: {first: 65530, node_ids: [0-9]}}]",
            "f.yaml:2: listeners[0].node_ports.first: leaves too few ports below 65536 for node_ids; "
            "lower it",
        ),
    ],
)
def test_listeners_that_cannot_work_are_explained(listeners: str, problem: str) -> None:
    assert problems_of(f"{CLUSTER}listeners: {listeners}") == [problem]


def test_a_sidecar_listens_for_its_node_and_shows_the_others() -> None:
    listeners = "[{bind: 0.0.0.0:9092, advertise: 'gw-{node_id}.example:9092', only_node: 3}]"
    ports = NodePorts(loading.parse(f"{CLUSTER}listeners: {listeners}").listeners[0])

    assert (ports.port_of(3), ports.port_of(4)) == (9092, None)
    assert ports.advertised_address(4) == ("gw-4.example", 9092)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "listeners: [{bind: 127.0.0.1:9350}]",
            "listeners[0].node_ports.first: a broker with node id 50 would need the port of bind of "
            "listener 127.0.0.1:9350; "
            "list node_ids if there may be one",
        ),
        (
            "listeners: [{bind: 127.0.0.1:9092, only_node: 3}]",
            "listeners[0].advertise: shows one address for every broker, right only for a cluster of one; "
            "else put {node_id} into it",
        ),
        (
            "listeners: [{proxy_protocol_from: [10.0.0.5, '::/0']}]",
            "listeners[0].proxy_protocol_from: lists every address: every client has to send a header, "
            "and may forge it; write your proxies'",
        ),
        (
            "quotas: {producer_ids: {remember: 10m}}",
            "quotas.producer_ids.remember: is below the window: an id that pauses 10m is charged again",
        ),
        (
            "quotas: {producer_ids: {max_throttle: 30s}}",
            "quotas.producer_ids.max_throttle: is near or above the clients' request timeout (30s); "
            "10s is safe",
        ),
    ],
)
def test_what_works_but_may_surprise_is_a_warning(text: str, warning: str) -> None:
    assert warnings_of(loading.parse(CLUSTER + text)) == [warning]


def test_a_header_towards_brokers_is_of_clients_connections_only() -> None:
    cluster = "cluster: {bootstrap_servers: [k1:9092], proxy_protocol: true}\n"
    (warning,) = warnings_of(loading.parse(cluster))
    assert warning.startswith("cluster.proxy_protocol: is for clients' connections")
    assert warnings_of(loading.parse(cluster + "events: {enabled: false}")) == []


def test_a_file_that_cannot_be_read_or_is_no_yaml_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read \(No such file or directory\)"):
        loading.load(tmp_path / "nowhere.yaml")

    assert problems_of("cluster: [")[0].startswith("f.yaml:1: is not valid YAML")
    assert problems_of("a: &a [*a]")[0] == "f.yaml:1: is nested too deeply; an alias may not contain itself"
    (tmp_path / "latin.yaml").write_bytes(b"cluster: {name: \xe9}")
    with pytest.raises(ConfigError, match="is not UTF-8 text; save it as UTF-8"):
        loading.load(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bootstrap_servers": "k1"}, "--bootstrap-servers: 'k1' has no port; write k1:PORT"),
        (
            {"bootstrap_servers": "localhost:9292"},
            "--bootstrap-servers: localhost:9292 is this gateway's own listener; write the brokers' addresses",
        ),
        ({"bind": "9292"}, "--bind: '9292' has no port; write 9292:PORT"),
        (
            {"bind": "0.0.0.0:9292"},
            "--bind: clients cannot connect to 0.0.0.0; write the host they use, or a file with advertise",
        ),
        ({"admin": "9290"}, "--admin: '9290' has no port; write 9290:PORT"),
    ],
)
def test_an_error_names_the_option(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loading.from_options(**{"bootstrap_servers": "k1:9092", **options})  # type: ignore[arg-type]

    assert str(caught.value) == problem


UNIDENTIFIED = """
own_client: {mechanism: PLAIN, username: gw, password_file: f}
quotas:
  mode: enforce
  default: {producer_ids_rate: 10}
"""


def test_who_cannot_be_identified_has_quotas_like_a_user() -> None:
    settings = loading.parse(
        CLUSTER
        + UNIDENTIFIED
        + """
  unidentified:
    OAUTHBEARER: {producer_ids_rate: 5, mode: observe, producer_byte_rate: 7}
    AWS_MSK_IAM: {exempt: [producer_ids]}
"""
    )
    quotas = settings.to_quotas()
    oauth, msk = unidentified("OAUTHBEARER"), unidentified("AWS_MSK_IAM")
    assert quotas.users == {oauth: UserQuota(5_000, Mode.OBSERVE), msk: UserQuota(exempt=True)}
    assert quotas.bytes.rates == {(oauth, None): ByteRates(7)}
    assert warnings_of(settings) == []


def test_no_user_can_be_named_as_those_who_cannot_be_identified() -> None:
    problems = problems_of(CLUSTER + 'quotas: {users: {"\\0OAUTHBEARER": {}}}')
    assert [problem for problem in problems if "holds" in problem or "NUL" in problem]


OWN_CLIENT = "own_client: {mechanism: PLAIN, username: gw, password_file: /run/secrets/gw}\n"


def test_a_password_that_all_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "gw"
    settings = loading.parse(CLUSTER + OWN_CLIENT.replace("/run/secrets/gw", str(file)))

    def found() -> list[str]:
        return [text for path, text in conflicts.warnings(settings) if path[-1] == "password_file"]

    assert found() == []  # it is not there yet
    file.write_text("secret")
    for mode, expected in (
        (0o644, [f"can be read by every user of this machine; chmod 640 {file}"]),
        (0o640, []),
    ):
        file.chmod(mode)
        assert found() == expected


CERTIFICATES = "listeners: [{tls: {cert_file: c, client_auth: required, client_ca_file: ca}}]\n"


def identity(value: str) -> str:
    return CLUSTER.replace("}", f", upstream_identity: {value}}}")


@pytest.mark.parametrize("value", ["delegation_token", "own"])
def test_who_logs_in_for_others_needs_credentials(value: str) -> None:
    assert problems_of(identity(value) + CERTIFICATES) == [
        f"f.yaml:1: cluster.upstream_identity: {value} needs credentials: write own_client, a user of the brokers"
    ]
    loading.parse(identity(value) + CERTIFICATES + OWN_CLIENT)


def test_tokens_for_users_without_certificates_have_no_effect() -> None:
    (problem,) = problems_of(identity("delegation_token") + OWN_CLIENT)
    assert "no listener asks clients for certificates; add tls.client_auth to one" in problem
    loading.parse(identity("own") + OWN_CLIENT)
