"""KeyUpdates of TLS 1.3, which Python's ssl cannot send: asked of the OpenSSL below it.

A record of one has no data for whoever reads, and is the dearest of them: it derives keys.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
from typing import Any, Final, cast

_LIBRARY: Final = ctypes.CDLL(getattr(_ssl, "__file__", None))
for _function, _types in (
    ("SSL_key_update", [ctypes.c_void_p, ctypes.c_int]),
    ("SSL_do_handshake", [ctypes.c_void_p]),
    ("SSL_set_block_padding", [ctypes.c_void_p, ctypes.c_size_t]),
):
    getattr(_LIBRARY, _function).argtypes = _types

_BEFORE_SSL_BYTES: Final = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
"""A PySSLSocket begins as every object, with a pointer to its Python half; the SSL comes next."""


def key_updates(tls: ssl.SSLObject, count: int) -> None:
    """Write so many KeyUpdates, a record each, that ask for no answer."""
    for _ in range(count):
        assert _LIBRARY.SSL_key_update(_inner(tls), 0) == 1, "this is no TLS 1.3"
        assert _LIBRARY.SSL_do_handshake(_inner(tls)) == 1


def pad_records(tls: ssl.SSLObject, to_bytes: int) -> None:
    """Pad each record from now on to a multiple of this size."""
    assert _LIBRARY.SSL_set_block_padding(_inner(tls), to_bytes) == 1


def _inner(tls: ssl.SSLObject) -> Any:
    return ctypes.c_void_p.from_address(id(cast(Any, tls)._sslobj) + _BEFORE_SSL_BYTES)
