"""Precision, recall and confusion of findings, where users have labels; for the console and the pipeline. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from itertools import product
from math import sqrt
from typing import Any, Final

NOTHING: Final = "nothing"
"""Label in the confusion of a pattern that is not there, or was not found."""

Pairs = Set[tuple[str, str]]
"""(user, pattern): several of a user that shows several patterns."""


def accuracy(found: Pairs, labels: Pairs, patterns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of detector_accuracy, one per pattern.

    users: with the label; found: with the finding. Intervals are Wilson's, 95 %; None if nothing was labelled (recall)
    or found (precision). Only users that have labels are judged.
    """
    judged = _of_labelled(found, labels)
    for pattern in sorted(patterns):
        users, called, right = (
            sum(one == pattern for _, one in pairs) for pairs in (labels, judged, judged & labels)
        )
        yield {
            "pattern": pattern,
            "users": users,
            "found": called,
            "true_positives": right,
            **_share("precision", right, called),
            **_share("recall", right, users),
        }


def confusion(found: Pairs, labels: Pairs) -> Iterator[dict[str, Any]]:
    """Yield the rows of detector_confusion: users by actual and predicted pattern.

    A right finding counts on the diagonal. Of a user with mistakes, each missed label meets each wrong finding;
    `nothing` if there is none.
    """
    judged = _of_labelled(found, labels)
    counts = Counter((pattern, pattern) for _, pattern in judged & labels)
    missed, wrong = _by_user(labels - judged), _by_user(judged - labels)
    for user in missed.keys() | wrong.keys():
        counts.update(product(missed.get(user, [NOTHING]), wrong.get(user, [NOTHING])))
    for (actual, predicted), users in sorted(counts.items()):
        yield {"actual": actual, "predicted": predicted, "users": users}


def _by_user(pairs: Pairs) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for user, pattern in pairs:
        found.setdefault(user, []).append(pattern)
    return found


def _of_labelled(found: Pairs, labels: Pairs) -> Pairs:
    known = {user for user, _ in labels}
    return {(user, pattern) for user, pattern in found if user in known}


def _share(name: str, part: int, whole: int) -> dict[str, float | None]:
    low, high = wilson(part, whole) if whole else (None, None)
    return {name: part / whole if whole else None, f"{name}_low": low, f"{name}_high": high}


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the bounds of the share that `part` of `whole` stands for (Wilson 1927).

    Unlike the textbook's normal interval it stays within 0 and 1, and does not shrink to nothing at either.
    """
    z = 1.959963984540054  # of the normal distribution: 95 % lie within so many standard deviations
    share = part / whole
    centre = (share + z * z / (2 * whole)) / (1 + z * z / whole)
    half = sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole)) * z / (1 + z * z / whole)
    return max(centre - half, 0.0), min(centre + half, 1.0)
