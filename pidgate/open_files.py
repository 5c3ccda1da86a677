"""The limit of open files: most systems give a process 1,024 and allow far more to the one that asks."""

import resource
from contextlib import suppress


def allow_most(wanted: int = 0) -> int:
    """Raise this process's limit, which its children inherit, to the hard limit; return the limit then in force.

    `wanted`: raise the hard limit to it too, which only root may.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(wanted, hard), hard) if hard != resource.RLIM_INFINITY else (hard,):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft
