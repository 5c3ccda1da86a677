"""The version stands in pyproject.toml; whatever else names it agrees."""

import re
import subprocess
import sys

import yaml

from tests.support.image import ROOT
from tools.release.version import released_version

VERSION = released_version()


def test_tags_name_the_version_of_their_commit() -> None:
    git = ("git", "-C", str(ROOT))
    listed = subprocess.run([*git, "tag", "--list", "v*"], capture_output=True, text=True, check=True).stdout
    for tag in listed.split():
        there = subprocess.run(
            [*git, "show", f"{tag}:pyproject.toml"], capture_output=True, text=True, check=True
        )
        assert f'version = "{tag[1:]}"' in there.stdout.splitlines()


def test_the_release_is_refused_for_a_tag_of_another_version() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["version"]["steps"]
    (check,) = [step["run"] for step in steps if "GITHUB_REF_NAME" in step.get("run", "")]
    shell = check.replace("python", sys.executable)
    for tag, code in {f"v{VERSION}": 0, "v99.0.0": 1}.items():
        done = subprocess.run(
            ["bash", "-e", "-c", shell],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "GITHUB_REF_NAME": tag},
            check=False,
        )
        assert done.returncode == code


def test_the_chart_and_the_changelog_have_it() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/pidgate/Chart.yaml").read_text())
    newest = re.findall(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]

    assert chart["version"] == chart["appVersion"] == VERSION
    assert newest == VERSION
    for file in ("deploy/compose/compose.yaml", "deploy/kubernetes/sidecar-patch.yaml"):
        assert set(re.findall(r"pidgate:(\d+\.[\d.]+)", (ROOT / file).read_text())) == {VERSION}
