"""What the command line says of itself, on a narrow terminal, and what a shell completes."""

import re

import pytest
from typer.testing import CliRunner

from pidgate.cli import app, quotas
from pidgate.version import version

COMMANDS = [
    (),
    *((name,) for name in app.COMMANDS),
    ("quotas",),
    *(("quotas", name) for name in quotas.COMMANDS),
]


def shown(*words: str, width: int) -> str:
    # click stays two columns away from the edge.
    return CliRunner().invoke(app.app, list(words), terminal_width=width - 2).output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_name_is_cut_in_the_help_at_60_columns(words: tuple[str, ...]) -> None:
    wide, narrow = (shown(*words, "--help", width=width) for width in (2_000, 60))

    typed = {word for word in wide.split() if re.search(r"[=:_]|^--", word)}
    assert {word for word in typed if word not in narrow.split()} == set()
    assert max(map(len, narrow.splitlines())) <= 60
    assert "..." not in narrow.replace("[ARGS]...", "")
    assert shown(*words, "-h", width=60) == narrow


def test_the_version_is_an_option_too() -> None:
    assert shown("--version", width=80) == shown("version", width=80)
    assert shown("--version", width=80).startswith(f"pidgate {version()} (")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("pidgate wh", ["who"]),
        ("pidgate quotas re", ["reset", "release", "refill"]),
        ("pidgate quotas describe --entity-d", ["--entity-default"]),
    ],
)
def test_a_shell_completes(line: str, completed: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_PIDGATE_COMPLETE": "complete_bash"}

    done = CliRunner().invoke(app.app, [], env=words, prog_name="pidgate")

    assert done.output.split() == completed
