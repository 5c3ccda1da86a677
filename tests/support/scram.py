"""A login by SCRAM-SHA-256 in raw requests, with extensions of the caller's choice (RFC 5802)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from pidgate.protocol import codec
from tests.support.raw import RawClient, request

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36


def scram_final(first: bytes, server_first: bytes, password: str) -> bytes:
    """Return the client-final that answers the broker's `server_first`."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}".encode()
    message = b",".join([first.removeprefix(b"n,,"), server_first, without_proof])
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def scram_login(client: RawClient, user: str, password: str, extensions: str = "") -> int:
    """Log in with extensions such as ",tokenauth=true"; return the error code of the last answer."""
    start = f"n,,n={user},r=abcdefghijklmnop"
    first = f"{start}{extensions}".encode()
    # What is signed is what the broker has understood: of one name the last.
    understood = dict(part.split("=", 1) for part in extensions.split(",")[1:])
    signed = (start + "".join(f",{name}={value}" for name, value in understood.items())).encode()
    assert client.call(SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})["error_code"] == 0
    frame = client.ask(request(SASL_AUTHENTICATE, 2, {"auth_bytes": first}))
    answer = codec.decode_response(SASL_AUTHENTICATE, 2, frame, 0, len(frame))
    if answer.error_code:
        return int(answer.error_code)
    final = scram_final(signed, answer.auth_bytes, password)
    return int(client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": final})["error_code"])
