"""The Helm chart, rendered by helm and held against Kubernetes' schemas; the gateway reads the files that it makes.

No Kubernetes runs here: nothing of this was ever applied.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pidgate.gateway.config.loading import parse
from tests.support.command_line import typed
from tests.support.image import ROOT
from tests.support.release_tools import fails, passes, tool
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

CHART = ROOT / "deploy" / "helm" / "pidgate"
KUBERNETES = ROOT / "deploy" / "kubernetes"
TEMPLATE = ("template", "gw", CHART, "--kube-version", "1.34.0")
"""helm asks no cluster for its version."""

FRONT = {
    "image": {"repository": "registry.example/pidgate"},
    "cluster": {"bootstrapServers": ["kafka-0.kafka:9092", "kafka-1.kafka:9092"], "nodeIds": [3, 5]},
}
EVERYTHING = {
    **FRONT,
    "admin": {"existingSecret": "pidgate"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "listener": {"authentication": "required"},
    "config": {
        "own_client": {"mechanism": "PLAIN", "username": "pidgate", "password_file": "/etc/pidgate/password"}
    },
    "networkPolicy": {
        "clients": [{"podSelector": {"matchLabels": {"kafka-client": "true"}}}],
        "monitoring": [{"namespaceSelector": {}}],
        "brokers": [{"podSelector": {"matchLabels": {"app": "kafka"}}}],
    },
    "front": {
        "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "advertise": "gw.example"}
    },
}
SIDECAR = {
    **FRONT,
    "mode": "sidecar",
    "admin": {"existingSecret": "pidgate"},
    "serviceMonitor": {"enabled": True},
}
VALUES = {"front": FRONT, "everything": EVERYTHING, "sidecar": SIDECAR}
OF_OPERATORS = ("ServiceMonitor", "PodMonitor")
"""Their schemas come with the Prometheus Operator, not with Kubernetes."""


def rendered(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    shown = passes(tool("helm"), *TEMPLATE, "--namespace", "kafka", "--values", file)
    return [document for document in yaml.safe_load_all(shown) if document]


def only(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(document for document in documents if document["kind"] == kind)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_what_helm_renders(values: dict[str, Any], tmp_path: Path) -> None:
    documents = [one for one in rendered(values, tmp_path) if one["kind"] not in OF_OPERATORS]
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(documents))

    passes(tool("kubernetes-validate"), "--strict", file)


def test_a_wrong_field_is_noticed(tmp_path: Path) -> None:
    deployment = only(rendered(FRONT, tmp_path), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(deployment))

    assert "readynessProbe" in fails(tool("kubernetes-validate"), "--strict", file)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_gateway_reads_its_file(values: dict[str, Any], tmp_path: Path) -> None:
    files = only(rendered(values, tmp_path), "ConfigMap")["data"]
    assert len(files) == (3 if values is SIDECAR else 1)
    for name, text in files.items():
        settings = parse(text, name)
        (listener,) = settings.listeners
        assert settings.quotas.mode == "observe"
        assert listener.only_node == (int(name[len("kafka-")]) if values is SIDECAR else None)


def test_the_service_has_each_brokers_port_at_one_address(tmp_path: Path) -> None:
    documents = rendered(FRONT, tmp_path)
    (listener,) = parse(only(documents, "ConfigMap")["data"]["pidgate.yaml"]).listeners
    service = next(
        one for one in documents if one["kind"] == "Service" and one["metadata"]["name"] == "gw-pidgate"
    )
    container = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]

    assert listener.advertise is not None
    assert listener.advertise.host == "gw-pidgate.kafka.svc"
    assert [port["port"] for port in service["spec"]["ports"]] == [9292, 9300, 9301]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert [named[port["targetPort"]] for port in service["spec"]["ports"]] == [9292, 9300, 9301]


def test_the_admin_address_answers_to_the_name_that_helm_test_calls(tmp_path: Path) -> None:
    documents = rendered(FRONT, tmp_path)
    *_, address = only(documents, "Pod")["spec"]["containers"][0]["args"]

    assert (
        address.removesuffix(":9290")
        in parse(only(documents, "ConfigMap")["data"]["pidgate.yaml"]).admin.hosts
    )


def test_nothing_can_be_written_but_the_volumes(tmp_path: Path) -> None:
    pod = only(rendered(EVERYTHING, tmp_path), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {one["mountPath"] for one in container["volumeMounts"] if "readOnly" not in one} == {
        "/var/lib/pidgate",
        "/tmp",
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "repository"),
        ({**FRONT, "cluster": {"bootstrapServers": ["kafka:9092"]}}, "nodeIds"),
        ({**FRONT, "replicas": 3}, "replicas"),
        ({**FRONT, "terminationGracePeriodSeconds": 10}, "terminationGracePeriodSeconds"),
        ({**FRONT, "serviceMonitor": {"enabled": True}}, "scrape token"),
    ],
    ids=["no image", "no brokers", "unknown key", "killed while it drains", "no scrape token"],
)
def test_wrong_values_are_refused(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    assert said in fails(tool("helm"), *TEMPLATE, "--values", file)


def keys_of_schema(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        if inner.get("additionalProperties") is False:
            yield from keys_of_schema(inner, f"{prefix}{name}.")


def test_the_schema_has_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = set(keys_of_schema(schema)) - {"global"}
    top = {key.partition(".")[0] for key in named}
    assert top == set(values)
    for key in named:
        outer, _, inner = key.rpartition(".")
        found = values
        for word in filter(None, outer.split(".")):
            found = found[word]
        assert inner in found, key


@pytest.mark.kafka
@pytest.mark.parametrize("values", [FRONT, EVERYTHING], ids=["no token", "the doctor"])
def test_the_command_of_helm_test_tells_a_gateway_from_none(values: dict[str, Any], tmp_path: Path) -> None:
    """As rendered, but for the address and the place of the token."""
    *words, address = only(rendered(values, tmp_path), "Pod")["spec"]["containers"][0]["args"]
    assert address == "gw-pidgate-admin:9290"
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("a-secret-word")
    command = [word.replace("/etc/pidgate/token", str(token)) for word in words]
    with Cluster() as cluster, GatewayProcess(cluster.bootstrap_servers()) as gateway:
        asked = [*command, f"127.0.0.1:{gateway.admin_port}"]
        if "--token-file" in words:
            gateway.stop()
            gateway.config["admin"]["token_file"] = str(token)
            gateway.start()
        done = typed(*asked)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("brokers answer" in done.stdout) is ("doctor" in words)
        cluster.node(1).kill()
        until(lambda: typed(*asked).returncode == 1, 60)
        gateway.kill()
        assert typed(*asked).returncode == (2 if "doctor" in words else 1)


def test_helm_lints_it(tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(EVERYTHING))
    passes(tool("helm"), "lint", "--strict", CHART, "--values", file)


def test_kubernetes_takes_a_broker_with_the_sidecar(tmp_path: Path) -> None:
    patch = yaml.safe_load((KUBERNETES / "sidecar-patch.yaml").read_text())
    pod = patch["spec"]["template"]
    pod["metadata"]["labels"]["app"] = "kafka"
    pod["spec"]["containers"] = [{"name": "kafka", "image": "apache/kafka:4.1.0"}]
    patch["spec"] |= {"serviceName": "kafka", "selector": {"matchLabels": {"app": "kafka"}}}
    file = tmp_path / "statefulset.yaml"
    file.write_text(
        yaml.safe_dump(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kafka"}, **patch}
        )
    )

    passes(tool("kubernetes-validate"), "--strict", file)
