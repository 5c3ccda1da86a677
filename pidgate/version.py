"""The version of the installed package, and which build of it is installed."""

from importlib import metadata, util


def version() -> str:
    """Return the version that pip knows, for example "0.1.0"."""
    return metadata.version("pidgate")


def is_compiled() -> bool:
    """Return True when the modules of the hot path are compiled: all of them are or none (setup.py)."""
    return util.find_spec("pidgate._hot_path__mypyc") is not None
