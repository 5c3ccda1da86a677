"""Write the tables of libraries in docs/reference/clients.md: `python -m tests.support.clients_page` (`make docs`)."""

from __future__ import annotations

from typing import Final

from pidgate.client_faults import CLIENT_FAULTS, ClientFault
from tests.support.architecture_page import generated
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "clients.md"


def table() -> str:
    lines = ["| client | what breaks | what to do | the gateway |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {fault.clients} | {fault.breaks} | {fault.remedy} | {_done(fault)} |" for fault in CLIENT_FAULTS
    ]
    return "\n".join(lines)


def _done(fault: ClientFault) -> str:
    if fault.is_refused_at_init:
        return "refuses it at InitProducerId, not at Produce"
    return "treats it as any client" if fault.is_told_throttle else "mutes it, and tells no throttle"


PARTS: Final = {"harmed": table}


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8"), PARTS), "utf-8")
