"""The options of every producer's program, and SIGTERM, which means: finish what you do, then end."""

import argparse
import signal
import threading
from pathlib import Path


def parser_of(module: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all producers."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.sandbox.producers.{module}")
    for name in ("--bootstrap-server", "--user", "--password", "--topic", "--client-id"):
        parser.add_argument(name, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


def stop_signal() -> threading.Event:
    """Return what is set from SIGTERM on. Call it in the main thread."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    return stop
