"""The limit of open files: most systems give a process 1,024 and allow far more to the one that asks.

Each client takes two, its own connection and the broker's.
"""

import resource
from contextlib import suppress


def allow_most() -> int:
    """Raise this process's limit, which its children inherit, to the hard limit; the limit that is then in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft
