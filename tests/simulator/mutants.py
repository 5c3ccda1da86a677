"""Rules of the documents that guard against loss or evasion, each broken in one way, and the schedule that notices it.

`MUTANTS` by name. Which rules there are, and what holds those that no schedule can notice: tests/unit/rules.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.breaking import Mutant
from tests.simulator.gateway_mutants import GATEWAY_MUTANTS
from tests.simulator.refusal_mutants import REFUSAL_MUTANTS

MUTANTS: Final[dict[str, Mutant]] = {**REFUSAL_MUTANTS, **GATEWAY_MUTANTS}

EQUIVALENT: Final[dict[str, str]] = {
    "entry_ends_at_epoch": "an epoch begins at 0: that is at or below whatever was refused before, and lifts it",
}
"""Rules of the table of refusals without which the same batches pass, a refusal of 100 ms earlier or later."""
