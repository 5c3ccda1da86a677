"""The client's side of SASL: PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802). No frames, no connection.

A crash loop logs in with every life, so the salted password is computed once for each salt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from functools import lru_cache
from typing import Final

from pidgate.load.plan import Login

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MOST_ITERATIONS: Final = 1_000_000


class LoginRefused(Exception):
    """The broker does not take the credentials, or does not know them itself."""


def tokens(login: Login, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the client's tokens and take the server's. Raises LoginRefused.

    `nonce`: unguessable, of printable characters without a comma.
    """
    if login.mechanism == "PLAIN":
        yield f"\0{login.user}\0{login.password}".encode()
        return
    name = login.user.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode()
    fields = _fields(server_first)
    try:
        both_nonces, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise LoginRefused(f"an unreadable SCRAM answer: {error}") from error
    if not both_nonces.startswith(nonce) or not 0 < iterations <= _MOST_ITERATIONS:
        raise LoginRefused("a SCRAM answer to another login")
    digest = _HASHES[login.mechanism]
    salted = _salted(digest, login.password, salt, iterations)
    without_proof = f"c=biws,r={both_nonces}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_last = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if _fields(server_last).get("v") != base64.b64encode(expected).decode():
        raise LoginRefused("the broker does not know the password either")


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


@lru_cache(maxsize=16)
def _salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
