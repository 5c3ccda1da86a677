"""Targets that end TLS: HAProxy and pidgate, each behind a HAProxy that speaks TLS to it for the loads.

The loads stay as they are, and their own cost of TLS is not measured; nor is that of the HAProxy before the target,
which is the same for both. All use one cipher of TLS 1.3, and no connection resumes a session.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.sandbox.certificates import Authority, Pair

TLS_TARGETS: Final = {"haproxy-tls": "haproxy", "pidgate-tls": "pidgate"}
"""Each with the one that it is without TLS."""

CIPHER: Final = "TLS_AES_128_GCM_SHA256"

_FRONT_CFG: Final = """\
global
  nbthread 1
  maxconn 9000
  ssl-default-server-ciphersuites {cipher}
  ssl-default-server-options ssl-min-ver TLSv1.3
defaults
  mode tcp
  timeout connect 10s
  timeout client 10m
  timeout server 10m
listen front
  bind {host}:{port}
  server behind {host}:{behind} ssl verify required ca-file {ca_file} verifyhost localhost no-ssl-reuse
"""


class Front(NamedTuple):
    """Certificates of a target, and what speaks to it."""

    pair: Pair
    config: Path

    @property
    def bind_of_haproxy(self) -> str:
        """Words of HAProxy's `bind` that end TLS there."""
        return f" ssl crt {self.pair.both} ssl-min-ver TLSv1.3"

    @property
    def of_listener(self) -> dict[str, Any]:
        """Return pidgate's section `listeners.tls`."""
        return {
            "cert_file": str(self.pair.cert_file),
            "key_file": str(self.pair.key_file),
            "min_version": "1.3",
        }

    @property
    def command(self) -> list[str]:
        return ["haproxy", "-db", "-f", str(self.config)]


def front(folder: Path, host: str, port: int, behind: int) -> Front:
    """Write certificates, and the configuration of a HAProxy from `port` to TLS at `behind`."""
    certificates = folder / f"tls-{port}"
    certificates.mkdir()
    authority = Authority(certificates)
    config = certificates / "front.cfg"
    config.write_text(
        _FRONT_CFG.format(host=host, port=port, behind=behind, ca_file=authority.ca_file, cipher=CIPHER)
    )
    return Front(authority.issue("target"), config)


def has_tls() -> bool:
    """Return whether this machine's HAProxy was built with OpenSSL."""
    program = shutil.which("haproxy")
    if program is None:
        return False
    done = subprocess.run([program, "-vv"], capture_output=True, text=True, check=False)
    return "USE_OPENSSL=1" in done.stdout
