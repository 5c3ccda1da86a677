"""The file of Compose against its schema, and the gateway reads the file that it mounts."""

from pathlib import Path

import yaml

from pidgate.gateway.config.loading import load
from tests.support.image import ROOT
from tests.support.release_tools import fails, passes, tool

FOLDER = ROOT / "deploy" / "compose"
COMPOSE = FOLDER / "compose.yaml"
SCHEMA = ("--builtin-schema", "vendor.compose-spec")


def test_compose_takes_the_file(tmp_path: Path) -> None:
    passes(tool("check-jsonschema"), *SCHEMA, COMPOSE)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(COMPOSE.read_text().replace("read_only: true", "readonly: true"))
    fails(tool("check-jsonschema"), *SCHEMA, wrong)


def test_the_gateway_reads_its_file_at_the_ports_that_are_published() -> None:
    settings = load(FOLDER / "pidgate.yaml")
    service = yaml.safe_load(COMPOSE.read_text())["services"]["pidgate"]
    published = {int(port.rpartition(":")[2]) for port in service["ports"]}

    assert published == {9392, 9401, 9290}
    assert {listener.bind.port for listener in settings.listeners} >= {9292, 9392}


def test_everything_that_is_mounted_is_there() -> None:
    for service in yaml.safe_load(COMPOSE.read_text())["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (FOLDER / source).exists()
