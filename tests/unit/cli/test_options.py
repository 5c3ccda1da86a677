"""Each command names the function that does its work, and that takes just these options."""

from importlib import import_module
from typing import Any, get_type_hints

import pytest

from pidgate.cli import app, quotas


@pytest.mark.parametrize(("options", "work"), [*app.COMMANDS.values(), *quotas.COMMANDS.values()])
def test_the_work_of_a_command_takes_its_options(options: type[Any], work: str) -> None:
    module, _, function = work.partition(".")
    hints = get_type_hints(getattr(import_module(f"pidgate.cli.{module}"), function))
    assert hints == {"options": options, "return": int}
