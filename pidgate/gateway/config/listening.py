"""The error of a failed bind, with the setting and the remedy. Opens no socket."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pidgate.units import Address


class CannotListen(Exception):
    """An address cannot be listened on. `what` names the setting (not in the text), for example "admin.bind"."""

    def __init__(self, what: str, address: Address, cause: OSError) -> None:
        super().__init__(f"cannot listen on {address}: {_remedy(address, cause)}")
        self.what = what
        self.address = address


@contextmanager
def listening_on(what: str, address: tuple[str, int]) -> Iterator[None]:
    """Turn the OSError of a bind inside the block into CannotListen. Raises CannotListen."""
    try:
        yield
    except OSError as error:
        raise CannotListen(what, Address(*address), error) from error


def _remedy(address: Address, cause: OSError) -> str:
    if cause.errno == errno.EADDRINUSE:
        find = f"ss -ltnp 'sport = :{address.port}'"
        return (
            f"the port is in use; stop the process listening there ({find} shows it), or write another port"
        )
    if cause.errno in (errno.EACCES, errno.EPERM):
        return "not allowed; choose a port above 1023, or grant CAP_NET_BIND_SERVICE"
    if cause.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {address.host}; write one of its own, or 0.0.0.0 for all"
    return f"{cause.strerror or cause}; write an address of this machine"
