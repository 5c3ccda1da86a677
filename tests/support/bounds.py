"""How far the tests look: `make test` to small bounds, `make nightly` to long ones (HYPOTHESIS_PROFILE=thorough)."""

import os
from collections.abc import Iterable

from pidgate.protocol.versions import SPOKEN

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(count: int) -> int:
    """Return how many examples of a property are tried: `count` in the nightly run, a third of it by day."""
    return count if THOROUGH else max(5, count // 3)


def of_each_api(offered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return these (api key, version) in the nightly run, by day the oldest, first flexible and newest of each API."""
    every = sorted(offered)
    if THOROUGH:
        return every
    versions: dict[int, list[int]] = {}
    for api_key, version in every:
        versions.setdefault(api_key, []).append(version)
    return [
        (api_key, version)
        for api_key, version in every
        if version in (versions[api_key][0], SPOKEN[api_key].flexible_from, versions[api_key][-1])
    ]
