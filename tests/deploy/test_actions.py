"""GitHub's Actions and forms are well-formed. None of them has ever run."""

import re

from tests.support.image import ROOT
from tests.support.release_tools import passes, tool

GITHUB = ROOT / ".github"


def test_actionlint_finds_nothing() -> None:
    passes(tool("actionlint"), "-no-color")


def test_forms_have_githubs_shape() -> None:
    passes(
        tool("check-jsonschema"),
        "--builtin-schema",
        "vendor.github-issue-forms",
        *sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yml")),
    )
    passes(tool("check-jsonschema"), "--builtin-schema", "vendor.dependabot", GITHUB / "dependabot.yml")


def test_each_target_that_they_make_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {
        target
        for file in GITHUB.glob("workflows/*.yml")
        for target in re.findall(r"make ([a-z-]+)", file.read_text())
    }
    assert made
    assert made <= targets
