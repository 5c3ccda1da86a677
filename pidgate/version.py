"""The version of the installed package."""

from importlib import metadata


def version() -> str:
    """As pip knows it, for example "0.1.0"."""
    return metadata.version("pidgate")
