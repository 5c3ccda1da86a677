"""HAProxy as an oracle: it wrote the PROXY protocol down. One that reads headers and says whose connection it is."""

from __future__ import annotations

import shutil
import socket
import time
from functools import cache
from pathlib import Path
from typing import Final

from tools.sandbox import guard

_CONFIG: Final = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend f
    bind unix@{folder}/socket accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
"""
_ASKED: Final = b"GET / HTTP/1.0\r\n\r\n"


class HaproxyOracle:
    """Ask; the process ends with this one."""

    def __init__(self, program: str) -> None:
        folder = guard.temporary_directory("haproxy-")
        self._socket = folder / "socket"
        config = folder / "haproxy.cfg"
        config.write_text(_CONFIG.format(folder=folder))
        with Path("/dev/null").open("wb") as nowhere:
            # Kept: an object that is collected while its process runs complains.
            self._process = guard.spawn([program, "-db", "-f", str(config)], stdout=nowhere, stderr=nowhere)
        give_up_s = time.monotonic() + 10
        while not self._socket.exists():
            assert time.monotonic() < give_up_s, "haproxy does not listen"
            time.sleep(0.02)

    def ask(self, header: bytes) -> list[str] | None:
        """Return source, its port, destination, its port; None: it does not take the header, or it names nobody."""
        answer = b""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self._socket))
            client.sendall(header + _ASKED)
            try:
                while part := client.recv(4096):
                    answer += part
            except ConnectionResetError:
                return None
        head, _, body = answer.partition(b"\r\n\r\n")
        found = body.decode().split()
        return found if head.startswith(b"HTTP/1.1 200") and len(found) == 4 else None


@cache
def haproxy() -> HaproxyOracle | None:
    """Return the one of this process, started at first use; None where it is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    return None if program is None else HaproxyOracle(program)
