"""The same Python program in processes whose sets of strings are in other orders."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed_by_each(code: str) -> set[str]:
    """Return what `code` prints under two values of PYTHONHASHSEED: one element if it does not depend on it."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
