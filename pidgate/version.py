"""The version of the installed package, and what of it is compiled."""

from importlib import metadata, util


def version() -> str:
    """Return the version recorded by pip, for example "0.1.0"."""
    return metadata.version("pidgate")


def is_compiled() -> bool:
    """Return whether the modules of the hot path are compiled: all of them are or none (setup.py)."""
    return util.find_spec("pidgate._hot_path__mypyc") is not None


def has_lanes() -> bool:
    """Return whether the extension is built whose threads carry what needs no decision (gateway/lane)."""
    return util.find_spec("pidgate.gateway.lane._lane") is not None
