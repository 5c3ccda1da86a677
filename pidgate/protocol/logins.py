"""SASL, client side: PLAIN (RFC 4616), SCRAM-SHA-256/512 (RFC 5802), delegation tokens (KIP-48). PURE.

The salted password is cached per salt, because a crash loop logs in at every restart.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Final

from pidgate.protocol import messages, producer_requests
from pidgate.protocol.messages import Question

Build = Callable[[int, str], bytes]
"""Function that frames a request from a correlation id and a client id."""

TOKEN_EXTENSION: Final = ",tokenauth=true"
"""SCRAM extension for delegation tokens: user is the token id, password its HMAC in base64."""

# PLAIN: brokers answer with their mechanisms whether or not they support it.
MECHANISMS: Final = Question(
    producer_requests.sasl_handshake_request(1, messages.CLIENT_ID, "PLAIN"),
    messages.SASL_HANDSHAKE,
    producer_requests.SASL_HANDSHAKE_VERSION,
)
"""The question which mechanisms a broker has."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MOST_ITERATIONS: Final = 16_384
"""Kafka's own limit (ScramMechanism). That many iterations block the event loop for 9 ms."""


class LoginRefused(Exception):
    """The broker rejected the credentials or failed to prove that it knows them."""


class AnswersDiffer(Exception):
    """The broker answers something else than the client was told in its place."""


def introduce(versions: tuple[Question, bytes] | None, mechanism: str) -> Generator[Build, bytes, int]:
    """Repeat ApiVersions and SaslHandshake to the broker: yields requests, receives response frames.

    `versions`: the question and the answer that its client was told. None, and an empty mechanism: not asked.
    Returns 0, as there is no session yet. Raises AnswersDiffer, KafkaProtocolError.
    """
    if versions is not None:
        question, told = versions
        frame = yield lambda _n, _client_id: question.frame
        version = question.api_version
        if messages.offer_of(frame, version) != messages.offer_of(told, version):
            raise AnswersDiffer("its APIs, versions or features have changed")
    if mechanism:
        frame = yield lambda n, client_id: producer_requests.sasl_handshake_request(n, client_id, mechanism)
        if messages.question_error(frame):
            raise AnswersDiffer(f"it does not offer {mechanism} any more")
    return 0


def log_in(
    mechanism: str, user: str, password: str, nonce: str, extensions: str = ""
) -> Generator[Build, bytes, int]:
    """Exchange SaslHandshake and SaslAuthenticate: yields requests, receives response frames.

    Returns the session lifetime in ms (KIP-368); 0 is unlimited. Raises LoginRefused, KafkaProtocolError.
    """
    frame = yield lambda n, client_id: producer_requests.sasl_handshake_request(n, client_id, mechanism)
    version = producer_requests.SASL_HANDSHAKE_VERSION
    if messages.sasl_handshake_answer(frame, 0, len(frame), version).error_code:
        raise LoginRefused(f"the brokers do not offer {mechanism}")
    dialog = tokens(mechanism, user, password, nonce, extensions)
    token = next(dialog)
    while True:
        frame = yield _authenticate(token)
        answer = producer_requests.sasl_authenticate_answer(frame)
        if answer.error_code:
            why = (
                f"code {answer.error_code}: {answer.reason}" if answer.reason else f"code {answer.error_code}"
            )
            raise LoginRefused(f"{user} cannot log in with {mechanism} ({why})")
        try:
            token = dialog.send(answer.token)
        except StopIteration:
            return answer.session_lifetime_ms


def _authenticate(token: bytes) -> Build:
    return lambda n, client_id: producer_requests.sasl_authenticate_request(n, client_id, token)


def tokens(
    mechanism: str, user: str, password: str, nonce: str, extensions: str = ""
) -> Generator[bytes, bytes, None]:
    """Exchange tokens: yields the client's, receives the server's. Raises LoginRefused.

    `nonce` must be unpredictable and consist of printable characters without commas. `extensions` are added
    to SCRAM's first message.
    """
    if mechanism == "PLAIN":
        yield f"\0{user}\0{password}".encode()
        return
    name = user.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}{extensions}"
    server_first = _text((yield f"n,,{client_first}".encode()))
    fields = _fields(server_first)
    try:
        both_nonces, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise LoginRefused(f"an unreadable SCRAM response: {error}") from error
    if not both_nonces.startswith(nonce) or not 0 < iterations <= _MOST_ITERATIONS:
        raise LoginRefused("a SCRAM response to a different login")
    digest = _HASHES[mechanism]
    salted = _salted(digest, password, salt, iterations)
    without_proof = f"c=biws,r={both_nonces}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_last = _text((yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if _fields(server_last).get("v") != base64.b64encode(expected).decode():
        raise LoginRefused("the broker failed to prove that it knows the password")


def _text(token: bytes) -> str:
    """Decode a token. Raises LoginRefused."""
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise LoginRefused(f"an unreadable SCRAM response: {error}") from error


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


@lru_cache(maxsize=1_000)
def _salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
