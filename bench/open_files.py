"""The limit of open files: raised where it can be, known where not."""

import resource
from contextlib import suppress
from typing import Final

SLACK: Final = 600
"""What a process has open beside its connections; a broker also its logs and their indexes."""


def allow(wanted: int = 0) -> int:
    """Raise this process's limit (its children inherit it) to the hard limit, and that to `wanted` where
    root may; the limit that is then in force.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(wanted, hard), hard) if hard != resource.RLIM_INFINITY else (hard,):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft


def is_enough(limit: int, wanted: int) -> bool:
    """Whether `limit` allows `wanted` open files."""
    return limit == resource.RLIM_INFINITY or limit >= wanted
