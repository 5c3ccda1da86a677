"""The metrics as they are documented: a family that no page names would not be found by who needs it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
MADE = re.compile(r'\b(?:gauge|counter|histogram)\(\s*"(\w+)"')
OF_A_USER = re.compile(r'(?:\(\s*(?:gauge|counter),\s*"|\}producer_ids_)(\w+)')
BY_LABEL = re.compile(r'_by_label\(rows, "(\w+)')


def families() -> set[str]:
    """Return the names in the modules that make them."""
    folder = ROOT / "pidgate" / "gateway" / "metrics"
    made = {name for path in folder.glob("*.py") for name in MADE.findall(path.read_text("utf-8"))}
    users = (folder / "users.py").read_text("utf-8")
    of_users = OF_A_USER.findall(users)
    made |= set(BY_LABEL.findall(users))
    return {f"pidgate_{name}" for name in made} | {f"pidgate_producer_ids_{name}" for name in of_users}


def test_every_metric_is_documented() -> None:
    page = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("operating.md", "limits.md"))
    quoted = {name.removesuffix("_total") for name in re.findall(r"`(pidgate_\w+)", page)}

    assert len(families()) > 64
    assert families() - quoted - {"pidgate_byte_no_room", "pidgate_byte_not_shared"} == set()
