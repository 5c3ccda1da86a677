"""Wait for all workers of a gateway."""

import time

from pidgate.sandbox.gateway import GatewayProcess

WITHIN_S = 30.0


def wait_for_workers(gateway: GatewayProcess) -> None:
    """Wait until each worker serves: the first that listens makes a gateway ready, and the others come a little later.
    For the first start of a gateway. Raises AssertionError with the end of its log.
    """
    workers = gateway.config.get("workers", 1)
    give_up_s = time.monotonic() + WITHIN_S
    for event in ("state_owner_connected", "worker_connected") if workers > 1 else ():
        while len(gateway.log_events(event)) < workers:
            assert time.monotonic() < give_up_s, gateway.log_tail()
            time.sleep(0.05)
