"""The user whom a client's certificate shows: its subject through the listener's mapping rules, as in Kafka's brokers.

Whoever is let in by a certificate has a quota: where its subject names nobody for sure, all such share one entity.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pidgate.gateway.config.principal_rules import PrincipalRules
from pidgate.gateway.tls.certificate import NotACertificate, subject
from pidgate.gateway.tls.distinguished_name import NoName, distinguished_name
from pidgate.quota.entities import BY_CERTIFICATE, User, unidentified

_REMEMBERED: Final = 1_024
_UNSAFE: Final = re.compile("[\0\n\r\x85\u2028\u2029]")
"""Java's patterns treat ends of lines unlike Python's, and a NUL begins no user's name."""


class CertificateUsers:
    """The users of one listener, by certificate. Patterns are asked once for each name that was seen lately."""

    def __init__(self, mapping_rules: str) -> None:
        """Compile the rules. Raises NotARule."""
        self._principal = lru_cache(_REMEMBERED)(PrincipalRules(mapping_rules).principal)

    def user(self, certificate: bytes) -> User:
        """Return whom a certificate in DER shows. Raises NoRuleApplies, with the name."""
        nobody = unidentified(BY_CERTIFICATE)
        try:
            name = distinguished_name(subject(certificate))
        except (NoName, NotACertificate):
            return nobody
        if _UNSAFE.search(name):
            return nobody
        return self._principal(name) or nobody
