"""The reference of configuration and commands is what the code says, and the schema accepts what pidgate accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.support import commands_page, configuration_page
from tests.support.import_graph import ROOT

EXAMPLES: Final = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if "bootstrap_servers" in path.read_text("utf-8")
]


def errors(text: str) -> list[str]:
    # YAML reads 1.2 as a number, as an editor does.
    content: dict[str, Any] = yaml.safe_load(text)
    validator = Draft202012Validator(configuration_page.json_schema())
    return [error.message for error in validator.iter_errors(content)]


@pytest.mark.parametrize("module", [configuration_page, commands_page])
def test_a_page_is_up_to_date(module: Any) -> None:
    assert module.PAGE.read_text("utf-8") == module.page(), "make docs"


def test_the_schema_is_up_to_date() -> None:
    assert configuration_page.SCHEMA_FILE.read_text("utf-8") == configuration_page.schema_text(), "make docs"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_schema_accepts_each_example(path: Path) -> None:
    assert errors(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "listeners: []",
        "cluster: {bootstrap_servers: [k1:9092]}\nquota: {}",
        "cluster: {bootstrap_servers: [k1:9092]}\nquotas: {mode: maybe}",
        "cluster: {bootstrap_servers: [k1:9092]}\nquotas: {users: {alice: {producer_ids_rate: -1}}}",
    ],
)
def test_the_control_a_wrong_file_is_refused(text: str) -> None:
    assert errors(text)
