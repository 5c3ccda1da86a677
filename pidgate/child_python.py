"""The command line of a child process that runs a Python module."""

import sys


def python_module(name: str, *arguments: str) -> list[str]:
    """Return the command for `python -m name arguments`, safe in any working directory.

    Without -P the working directory comes first on the child's path, and a folder there shadows an installed package.
    """
    return [sys.executable, "-P", "-m", name, *arguments]
