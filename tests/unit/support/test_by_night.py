"""Which tests run by day and which by night, and what is left out while its inputs stay."""

import re

import pytest

from tests.support import inputs
from tests.support.by_night import BY_NIGHT, is_by_night
from tests.support.import_graph import imports_of, sources


@pytest.mark.parametrize("known", BY_NIGHT)
def test_what_runs_by_night_is_there(known: str) -> None:
    path, _, name = known.partition("::")
    text = (inputs.ROOT / "tests" / path).read_text("utf-8")
    for part in name.partition("[")[0].split("::"):
        assert re.search(rf"(def|class) {part}" if part else "def test_", text), part


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/kafka/test_fleet.py::test_the_quota_holds_over_all_gateways[before all]", True),
        ("tests/kafka/test_fleet.py::test_the_quota_holds_over_all_gateways[sidecars]", False),
        (
            "tests/kafka/test_client_quotas_api.py::test_ours_stay_here_and_the_other_keys_arrive[oldest-0]",
            True,
        ),
        (
            "tests/kafka/test_client_quotas_api.py::test_ours_stay_here_and_the_other_keys_arrive[newest-0]",
            False,
        ),
    ],
)
def test_what_runs_by_night(test: str, expected: bool) -> None:
    assert is_by_night(test) is expected


def test_what_compiles_is_left_out_only_while_its_inputs_are_those_of_a_green_night(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "tests/image/"
    monkeypatch.setattr(inputs, "THOROUGH", False)
    green = {"inputs_from": "abc", "inputs": {place: inputs.digest(place)}}
    monkeypatch.setattr(inputs, "last_nightly", lambda: green)
    assert list(inputs.unchanged()) == [place]
    green["inputs"] = {place: "of other files"}
    assert inputs.unchanged() == {}


def test_what_the_tests_of_the_pipeline_import_is_among_their_inputs() -> None:
    """What needs a real Kafka is not left out, so it may import more."""
    place = "tests/pipeline/"
    reached = [file for file in sources(place) if "mark.kafka" not in (inputs.ROOT / file).read_text("utf-8")]
    for file in reached:  # grows
        reached.extend(sorted(imports_of(file) - set(reached)))
    known = {file.relative_to(inputs.ROOT).as_posix() for file in inputs.files_of(place)}
    assert "pidgate/quota/token_bucket.py" in reached
    assert [file for file in reached if file not in known] == []


def test_what_is_compiled_is_there() -> None:
    assert [module for module in inputs.hot_modules() if not (inputs.ROOT / module).is_file()] == []
