"""Certificates for local clusters and gateways: a private CA and the certificates it issues. Needs `openssl`."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.sandbox.errors import SandboxError

LOOPBACK = ("DNS:localhost", "IP:127.0.0.1")
_EXPIRED_DAYS = -1
_FUTURE = ("20900101000000Z", "20910101000000Z")


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key; `both` contains the two, as in Kafka's PEM key stores."""

    cert_file: Path
    key_file: Path
    both: Path


class Authority:
    """A CA in an existing directory. Keys are readable by their owner only."""

    def __init__(self, directory: Path, name: str = "sandbox CA") -> None:
        self._directory = directory
        self.ca_file = directory / "ca.pem"
        self._key_file = directory / "ca.key"
        _make_key(self._key_file, rsa=False)
        _openssl(
            "req", "-x509", "-new", "-key", self._key_file, "-days", "3650", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-out", self.ca_file,
        )  # fmt: skip

    def issue(
        self,
        stem: str,
        *,
        subject: str = "",
        names: Sequence[str] = LOOPBACK,
        days: int = 30,
        expired: bool = False,
        not_yet: bool = False,
        rsa: bool = False,
    ) -> Pair:
        """Issue a certificate; repeating a stem replaces its files.

        `subject` in openssl's syntax (/CN=joe/O=acme); `names`: its subjectAltName; `not_yet`: it is valid from a day
        in the future on. Raises SandboxError.
        """
        pair = Pair(*(self._directory / f"{stem}.{end}" for end in ("pem", "key", "both.pem")))
        request = self._directory / f"{stem}.csr"
        new_cert, new_key = self._directory / f"{stem}.pem.new", self._directory / f"{stem}.key.new"
        _make_key(new_key, rsa=rsa)
        _openssl(
            "req", "-new", "-key", new_key, "-subj", subject or f"/CN={stem}",
            "-addext", f"subjectAltName={','.join(names)}", "-out", request,
        )  # fmt: skip
        if not_yet:
            self._sign_for_the_future(request, new_cert)
        else:
            _openssl(
                "x509", "-req", "-in", request, "-CA", self.ca_file, "-CAkey", self._key_file,
                "-copy_extensions", "copy", "-days", str(_EXPIRED_DAYS if expired else days), "-out", new_cert,
            )  # fmt: skip
        request.unlink()
        _write_private(pair.both, new_key.read_text() + new_cert.read_text() + self.ca_file.read_text())
        os.replace(new_key, pair.key_file)
        os.replace(new_cert, pair.cert_file)
        return pair

    def _sign_for_the_future(self, request: Path, cert: Path) -> None:
        """Sign with `openssl ca`: `openssl x509` cannot set the first day before OpenSSL 3.4."""
        database, config = self._directory / "ca.index", self._directory / "ca.conf"
        database.write_text("")
        config.write_text(
            f"[ca]\ndefault_ca=this\n[this]\ndatabase={database}\nserial={self._directory}/ca.serial\n"
            f"new_certs_dir={self._directory}\n"
            "unique_subject=no\ndefault_md=sha256\npolicy=any\ncopy_extensions=copy\nrand_serial=yes\n"
            "[any]\ncommonName=supplied\n"
        )
        _openssl(
            "ca", "-batch", "-notext", "-rand_serial", "-config", config, "-cert", self.ca_file,
            "-keyfile", self._key_file, "-startdate", _FUTURE[0], "-enddate", _FUTURE[1],
            "-in", request, "-out", cert,
        )  # fmt: skip


def _make_key(file: Path, *, rsa: bool) -> None:
    """Create a key in PKCS #8, the only format that Java reads."""
    kind = (
        ("RSA", "-pkeyopt", "rsa_keygen_bits:2048") if rsa else ("EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    )
    _write_private(file, "")
    _openssl("genpkey", "-algorithm", *kind, "-out", file)


def _write_private(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(text)


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise SandboxError(
            "certificates are made with openssl, which is not installed: apt-get install openssl"
        )
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SandboxError(f"openssl {arguments[0]}: {done.stderr.strip()}")
