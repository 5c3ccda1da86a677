"""Errors that keep a gateway from starting.

CannotStart          a part of the gateway cannot start
    TlsUnusable      a certificate, a key or a CA cannot be used (tls/contexts.py)
    StateDirInUse    another gateway lives in the state directory (state/state_dir/lock.py)
"""


class CannotStart(Exception):
    """A part of the gateway cannot start. The message names cause and remedy."""
