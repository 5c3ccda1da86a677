"""A TLS handshake between two contexts, without a socket."""

from __future__ import annotations

import ssl


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLError, ssl.SSLError]:
    """Return how it ended at the client and at the server; an SSLError without a reason: well."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    ends: list[ssl.SSLError | None] = [None, None]
    for _ in range(6):
        for number, side in enumerate(sides):
            if ends[number] is not None and ends[number].args:  # type: ignore[union-attr]
                continue
            try:
                side.do_handshake()
                # A refusal by the server comes, with TLS 1.3, after the client's handshake.
                side.read(1)
            except (ssl.SSLWantReadError, ssl.SSLSyscallError):
                continue
            except ssl.SSLError as error:
                ends[number] = error
    return ends[0] or ssl.SSLError(), ends[1] or ssl.SSLError()
