"""Blocks of commands and configuration on the site: run by a test, or titled "not run here" and parsed here."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer
import yaml

from pidgate.cli.app import app
from pidgate.gateway.config.loading import parse
from pidgate.pipeline.cli import app as pipeline_app
from tests.support.import_graph import ROOT
from tests.support.site_pages import NOT_RUN, PLAYED, Block, blocks

PARSED: Final = f"{NOT_RUN}, parsed"
OTHERS: Final = ("pip ", "kafka-configs.sh ")
"""Beginnings of lines of other programs among parsed ones."""


def command_lines(text: str) -> Iterator[list[str]]:
    for line in re.sub(r"\\\n", "", text).splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def parse_command(words: list[str]) -> None:
    """Parse a line of `pidgate` to its last option, without running it. Raises what the command line would print."""
    _, *rest = words
    command: Any = typer.main.get_command(app)
    if rest[0] == "pipeline":
        command, rest = typer.main.get_command(pipeline_app), rest[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context("pidgate", rest)


def parse_block(block: Block) -> None:
    if block.language == "yaml":
        cluster = {"cluster": {"bootstrap_servers": ["k1:9092"]}}
        parse(yaml.safe_dump(cluster | yaml.safe_load(block.text)), block.page)
        return
    for words in command_lines(block.text):
        if words[0] == "pidgate":
            parse_command(words)
        else:
            assert " ".join(words).startswith(OTHERS), words


@pytest.mark.parametrize("block", list(blocks()), ids=lambda block: f"{block.page}:{block.text.split()[0]}")
def test_a_block_is_run_or_says_that_it_is_not(block: Block) -> None:
    if not block.language:
        assert not re.search(r"^(pidgate|kafka-\w+\.sh) ", block.text, re.MULTILINE), "give it a language"
    elif block.is_run:
        assert block.page in PLAYED
    elif block.title == PARSED:
        parse_block(block)
    else:
        assert re.match(rf"{NOT_RUN}: \w", block.title)


def test_pages_that_are_run_are_named_in_their_tests() -> None:
    for page, test in PLAYED.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text("utf-8")


def test_the_number_of_blocks_that_are_not_run_is_printed() -> None:
    found = Counter(block.title or "run" for block in blocks() if block.language)
    print(dict(found))
    assert found["run"] >= 7


@pytest.mark.parametrize("line", ["pidgate quotas raise alice", "pidgate mode observe --every"])
def test_the_control_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)rate|--every"):
        parse_command(line.split())


def test_the_control_a_wrong_key_is_noticed() -> None:
    with pytest.raises(Exception, match="quota_s"):
        parse_block(Block("page", "yaml", PARSED, "quota_s: {}"))
