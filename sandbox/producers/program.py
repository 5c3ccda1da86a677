"""The options of every producer's program, and SIGTERM, which means: finish what you do, then end."""

import argparse
import signal
from pathlib import Path


def parser_of(module: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all producers."""
    parser = argparse.ArgumentParser(prog=f"python -m pidgate.sandbox.producers.{module}")
    for name in ("--bootstrap-server", "--user", "--password", "--topic", "--client-id"):
        parser.add_argument(name, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


class StopSignal:
    """True from SIGTERM on. Make it in the main thread."""

    def __init__(self) -> None:
        self._has_come = False
        signal.signal(signal.SIGTERM, self._come)

    def __bool__(self) -> bool:
        return self._has_come

    def _come(self, _number: int, _frame: object) -> None:
        self._has_come = True
