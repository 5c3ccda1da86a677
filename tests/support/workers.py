"""Wait for all workers of a gateway."""

from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess

WITHIN_S = 30.0


def wait_for_workers(gateway: GatewayProcess) -> None:
    """Wait until each worker serves: the first that listens makes a gateway ready, and the others come a little later.
    For the first start of a gateway. Raises AssertionError.
    """
    workers = gateway.config.get("workers", 1)
    events = ("state_owner_connected", "worker_connected") if workers > 1 else ()
    until(lambda: all(len(gateway.log_events(event)) >= workers for event in events), WITHIN_S)
