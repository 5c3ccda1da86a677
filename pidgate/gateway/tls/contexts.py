"""Creation of SSL contexts: TLS 1.2 or later, brokers verified, private keys not world-readable.

All contexts are created here and never modified. Changed files lead to a new context (live.py). TlsUnusable
names the configuration key, the cause and the remedy, and never file contents.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NoReturn

from pidgate.gateway.config.source import KeyPath, dotted
from pidgate.gateway.config.tls_settings import (
    ClusterTlsSettings,
    ListenerTlsSettings,
    ServerTlsSettings,
)
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.tls.server_names import note_names

READABLE_BY_ALL: Final = 0o004

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsUnusable(CannotStart):
    """A certificate, key or CA is unusable."""

    def __init__(self, path: KeyPath, text: str) -> None:
        super().__init__(f"{dotted(path)}: {text}")
        self.path = path
        self.text = text


class FileMissing(TlsUnusable):
    """A file is missing or unreadable, which is not an error when a configuration is only checked."""


def server_context(tls: ServerTlsSettings, path: KeyPath) -> ssl.SSLContext:
    """Return the context for client connections; `path` leads to the section. Raises TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    # As a broker's Java sends. Each takes 25 us of a handshake's 170, and few clients use even one.
    context.num_tickets = 1
    _load_pair(context, tls.cert_file, tls.key_file, path)
    note_names(context)
    if isinstance(tls, ListenerTlsSettings):
        context.minimum_version = _VERSIONS[tls.min_version]
        if tls.client_auth != "none":
            _load_ca(context, tls.client_ca_file, (*path, "client_ca_file"))
            required = tls.client_auth == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_context(tls: ClusterTlsSettings, path: KeyPath) -> ssl.SSLContext:
    """Return the context for connections to brokers or to a gateway. Raises TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_hostname
    if tls.ca_file:
        _load_ca(context, tls.ca_file, (*path, "ca_file"))
    else:
        context.load_default_certs()
    if tls.cert_file:
        _load_pair(context, tls.cert_file, tls.key_file, path)
    return context


def pinned_context(cert_file: str, path: KeyPath, own: ClusterTlsSettings | None = None) -> ssl.SSLContext:
    """Return a context that trusts exactly this certificate, whatever its name.

    For a gateway whose certificate file is available locally. `own` is the client certificate. Raises
    TlsUnusable.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_ca(context, cert_file, (*path, "cert_file"))
    if own is not None and own.cert_file:
        _load_pair(context, own.cert_file, own.key_file, ())
    return context


def _context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Otherwise a peer could request endless handshakes on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str, path: KeyPath) -> None:
    key_path = (*path, "key_file" if key_file != cert_file else "cert_file")
    text_of(cert_file, (*path, "cert_file"))
    key = text_of(key_file, key_path)
    refuse_if_readable_by_all(key_file, key_path)
    if "PRIVATE KEY-----" not in key:
        raise TlsUnusable(key_path, f"{key_file} contains no private key in PEM (BEGIN PRIVATE KEY)")

    def encrypted() -> NoReturn:
        raise TlsUnusable(
            key_path,
            f"the key in {key_file} is encrypted; write it decrypted, for the gateway alone: "
            f"(umask 077; openssl pkey -in {key_file} -out decrypted.key)",
        )

    try:
        context.load_cert_chain(cert_file, key_file, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {key_file} does not match the certificate in {cert_file}; use a matching pair"
            raise TlsUnusable(key_path, text) from error
        raise TlsUnusable(
            (*path, "cert_file"),
            f"{cert_file} with the key in {key_file} cannot be used ({_reason(error)}); both must be PEM",
        ) from error
    except OSError as error:
        raise _vanished(f"{cert_file} with the key in {key_file}", (*path, "cert_file"), error) from error


def _load_ca(context: ssl.SSLContext, ca_file: str, path: KeyPath) -> None:
    text_of(ca_file, path)
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError as error:
        text = f"{ca_file} contains no readable certificate ({_reason(error)}); it must be PEM"
        raise TlsUnusable(path, text) from error
    except OSError as error:
        raise _vanished(ca_file, path, error) from error


def text_of(file: str, path: KeyPath) -> str:
    """Return the contents of a file. Raises FileMissing."""
    try:
        # PEM is ASCII, but any bytes may stand between its blocks.
        return Path(file).read_text("latin-1")
    except OSError as error:
        raise _vanished(file, path, error) from error


def refuse_if_readable_by_all(key_file: str, path: KeyPath) -> None:
    """Raise TlsUnusable if the key is world-readable, and FileMissing."""
    try:
        mode = Path(key_file).stat().st_mode
    except OSError as error:
        raise FileMissing(path, f"{key_file} cannot be read ({error.strerror})") from error
    if mode & READABLE_BY_ALL:
        raise TlsUnusable(
            path,
            f"the key in {key_file} is readable by every user of this machine and may be compromised; chmod 640 "
            f"{key_file} (in Kubernetes: defaultMode: 0440 of the secret's volume), or create a new one",
        )


def _vanished(files: str, path: KeyPath, error: OSError) -> FileMissing:
    """Return the error for unreadable files, which may be in the middle of a renewal."""
    reason = error.strerror or type(error).__name__
    return FileMissing(path, f"{files} cannot be read ({reason}); TLS needs it")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
