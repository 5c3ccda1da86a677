"""Failed TLS handshakes explained: the cause on either side, and the remedy. PURE."""

from __future__ import annotations

from typing import Final

_OF_CLIENTS: Final = {
    "HTTP_REQUEST": "it spoke HTTP",
    "WRONG_VERSION_NUMBER": "it did not speak TLS; is security.protocol of the client SSL or SASL_SSL?",
    "UNSUPPORTED_PROTOCOL": "its TLS is older than tls.min_version",
    "NO_SHARED_CIPHER": "it supports none of the ciphers of the gateway's OpenSSL",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate, and tls.client_auth is required",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of tls.cert_file: give it that CA (ssl.truststore.location)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refused the certificate of tls.cert_file: check its CA, names and validity",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refused the certificate of tls.cert_file",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "to it tls.cert_file has expired: renew it, or correct the client's clock",
}
"""By OpenSSL's reason, for the reasons seen in practice."""
_SET_CA: Final = "set tls.client_ca_file to its CA"
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"})
_WANTS_CERTIFICATE: Final = frozenset({
    "TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_HANDSHAKE_FAILURE", "SSLV3_ALERT_CERTIFICATE_EXPIRED",
})  # fmt: skip


def of_client(error: Exception) -> str:
    """Return the reason a client's handshake failed."""
    if verify := _verify_message(error):
        remedy = "renew it, or correct the clock of this machine" if _is_of_time(verify) else _SET_CA
        return f"its certificate was refused: {verify}; {remedy}"
    reason = str(getattr(error, "reason", None) or "")
    return _OF_CLIENTS.get(reason) or _plain(reason or str(error))


def of_broker(error: Exception, host: str) -> str:
    """Return the reason a handshake with a broker failed, and the remedy."""
    if verify := _verify_message(error):
        return f"the broker's certificate was refused: {verify}; {_remedy(verify, host)}"
    reason = str(getattr(error, "reason", None) or "")
    if reason in _NO_TLS or not reason:
        text = _plain(reason or str(error) or "it closed the connection")
        return f"{text}; is this the port of a TLS listener?"
    if reason in _WANTS_CERTIFICATE:
        return f"the broker refused the gateway ({_plain(reason)}): cluster.tls.cert_file must be issued by its CA"
    return _plain(reason)


def _verify_message(error: Exception) -> str:
    return str(getattr(error, "verify_message", None) or "")


def _is_of_time(verify: str) -> bool:
    return "expired" in verify or "not yet valid" in verify


def _remedy(verify: str, host: str) -> str:
    if "mismatch" in verify:
        return (
            f"its subjectAltName must contain {host}, the advertised host; verify_hostname: false in "
            "cluster.tls checks the CA only"
        )
    if _is_of_time(verify):
        return "renew it on the broker, or correct the clock of this machine"
    return "set cluster.tls.ca_file to its CA"


def _plain(reason: str) -> str:
    return reason.lower().replace("_", " ")
