"""The table of offered APIs against every schema in use: a gain that it does not mention fails here."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from pidgate.protocol import headers
from pidgate.protocol.versions import (
    NOT_OFFERED,
    OFFERED_FROM,
    SPOKEN,
    WITHHELD_VERSIONS,
    SpokenApi,
    cap_range,
    speaks,
)
from tests.support.rules import rule

OWN_SCHEMAS = Path(__file__).parents[3] / "pidgate" / "protocol" / "schemas"


def version_range(text: str) -> tuple[int, int] | None:
    """Kafka's notation: "3-13", "0", "none", and with an open end "9+" (as far as int16 goes)."""
    if text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def read_schemas(folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Upstream schemas by (api_key, request or response)."""
    found = {}
    for file in folder.iterdir():
        if file.name.endswith(".json"):
            schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", file.read_text("utf-8")))
            if schema["type"] in ("request", "response"):
                found[schema["apiKey"], schema["type"]] = schema
    return found


def codec_schemas() -> dict[tuple[int, str], dict[str, Any]]:
    # As files, not by importing the client: a schema counts even where the codec has no class for it.
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    return read_schemas(Path(spec.origin).parent / "protocol" / "schemas" / "resources")


JSON_SCHEMAS = codec_schemas() | read_schemas(OWN_SCHEMAS)


READ_BY_HAND = {18: 5}
"""Versions of ApiVersions that no codec reads: messages.py does, cluster and node included (KIP-1242)."""


def unmentioned(
    api_key: int, low: int, high: int, table: dict[int, SpokenApi], withheld: dict[tuple[int, int], str]
) -> list[int]:
    """The versions low-high of an API that the table neither offers nor withholds."""
    api = table.get(api_key)
    return [
        version
        for version in range(low, high + 1)
        if not (api and api.min_version <= version <= api.max_version) and (api_key, version) not in withheld
    ]


@pytest.mark.parametrize("key", sorted(JSON_SCHEMAS))
def test_every_version_of_every_json_schema_is_mentioned(key: tuple[int, str]) -> None:
    valid = version_range(JSON_SCHEMAS[key]["validVersions"])
    if valid is not None and key[0] not in NOT_OFFERED:
        assert unmentioned(key[0], *valid, SPOKEN, WITHHELD_VERSIONS) == []


@pytest.mark.parametrize("api_key", sorted(api_key_map))
def test_every_version_that_kio_knows_is_mentioned(api_key: int) -> None:
    versions = schema_name_map[api_key_map[api_key]]
    if api_key not in NOT_OFFERED:
        assert unmentioned(api_key, min(versions), max(versions), SPOKEN, WITHHELD_VERSIONS) == []


def test_a_gained_version_and_a_gained_api_would_be_noticed() -> None:
    assert unmentioned(0, 3, 14, SPOKEN, WITHHELD_VERSIONS) == [14]
    assert unmentioned(95, 0, 1, SPOKEN, WITHHELD_VERSIONS) == [0, 1]
    assert 95 not in NOT_OFFERED


@pytest.mark.parametrize("api_key", sorted(SPOKEN))
def test_the_table_says_what_the_schemas_say(api_key: int) -> None:
    api = SPOKEN[api_key]
    for kind in ("request", "response"):
        schema = JSON_SCHEMAS[api_key, kind]
        valid = version_range(schema["validVersions"])
        flexible = version_range(schema["flexibleVersions"])
        assert schema["name"] == api.name + kind.capitalize()
        assert valid is not None
        # No version is offered that no schema knows, and none of ours is newer than Kafka's.
        withheld = [version for key, version in WITHHELD_VERSIONS if key == api_key]
        assert max([api.max_version, *withheld]) == READ_BY_HAND.get(api_key, valid[1])
        assert api.flexible_from == (flexible[0] if flexible else None)
    assert sorted(api.listeners) == sorted(JSON_SCHEMAS[api_key, "request"]["listeners"])


@pytest.mark.parametrize("api_key", sorted(SPOKEN))
def test_an_unstable_version_is_withheld(api_key: int) -> None:
    schema = JSON_SCHEMAS[api_key, "request"]
    valid = version_range(schema["validVersions"])
    assert valid is not None
    if schema.get("latestVersionUnstable"):
        assert not speaks(api_key, valid[1])


@pytest.mark.parametrize("api_key", sorted(SPOKEN))
def test_the_header_peek_agrees_about_flexible_versions(api_key: int) -> None:
    api = SPOKEN[api_key]
    for version in range(api.max_version + 1):
        flexible = api.flexible_from is not None and version >= api.flexible_from
        assert headers.is_flexible(api_key, version) == flexible
        # ApiVersions is answered with header v0 always: its reader does not know the version yet (KIP-511).
        assert headers.response_header_version(api_key, version) == (1 if flexible and api_key != 18 else 0)


@rule("Clients are offered the broker's versions, cut to the versions the gateway knows.", "protocol")
def test_every_api_up_to_the_newest_is_accounted_for() -> None:
    assert SPOKEN.keys() | NOT_OFFERED.keys() == set(range(max(SPOKEN) + 1))


@rule("Clients are offered the broker's versions, cut to the versions the gateway knows.", "protocol")
def test_brokers_ranges_are_cut_to_ours() -> None:
    assert cap_range(0, 0, 11) == (0, 11)  # Kafka 3.9, and Produce stays at 0
    assert cap_range(0, 3, 20) == (3, 13)
    assert cap_range(24, 0, 5) == (0, 3)
    assert cap_range(32, 0, 4) == (0, 4)
    assert cap_range(76, 0, 0) is None
    assert cap_range(78, 0, 0) is None
    assert cap_range(67, 0, 0) is None
    assert cap_range(1000, 0, 5) is None


@given(
    st.integers(-1, 100).filter(lambda key: key not in OFFERED_FROM), st.integers(0, 20), st.integers(0, 20)
)
def test_the_cut_holds_just_what_both_sides_speak(api_key: int, low: int, high: int) -> None:
    both = [version for version in range(low, high + 1) if speaks(api_key, version)]
    assert cap_range(api_key, low, high) == ((both[0], both[-1]) if both else None)
