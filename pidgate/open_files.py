"""The limit of open files: most systems give a process 1,024 by default and allow far more on request."""

import resource
from contextlib import suppress


def allow_most(wanted: int = 0) -> int:
    """Raise this process's limit, inherited by its children, to the hard limit; return the new limit.

    `wanted`: raise the hard limit to it too, which only root may do.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(wanted, hard), hard) if hard != resource.RLIM_INFINITY else (hard,):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft
