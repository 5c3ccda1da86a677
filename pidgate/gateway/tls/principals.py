"""Users from client certificates: the subject mapped by the listener's rules, as in Kafka's brokers.

Certificates whose subject identifies no user reliably share one quota.
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
"""Java's patterns treat line ends differently from Python's, and no user name starts with NUL."""


class CertificateUsers:
    """The users of one listener, by certificate. Mapping results are cached for recent names."""

    def __init__(self, mapping_rules: str) -> None:
        """Compile the rules. Raises NotARule."""
        self._principal = lru_cache(_REMEMBERED)(PrincipalRules(mapping_rules).principal)

    def user(self, certificate: bytes) -> User:
        """Return the user of a DER certificate. Raises NoRuleApplies with the name."""
        nobody = unidentified(BY_CERTIFICATE)
        try:
            name = distinguished_name(subject(certificate))
        except (NoName, NotACertificate):
            return nobody
        if _UNSAFE.search(name):
            return nobody
        return self._principal(name) or nobody
