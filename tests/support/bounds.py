"""How far the tests look: `make test` to small bounds, `make nightly` to long ones (HYPOTHESIS_PROFILE=thorough)."""

import os

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(count: int) -> int:
    """Return how many examples of a property are tried: `count` in the nightly run, a third of it by day."""
    return count if THOROUGH else max(5, count // 3)
