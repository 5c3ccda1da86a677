"""The version of the installed package, and whether its hot path is compiled."""

from importlib import metadata, util


def version() -> str:
    """Return the version recorded by pip, for example "0.1.0"."""
    return metadata.version("pidgate")


def is_compiled() -> bool:
    """Return whether the modules of the hot path are compiled: all of them are or none (setup.py)."""
    return util.find_spec("pidgate._hot_path__mypyc") is not None
