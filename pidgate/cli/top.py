"""`pidgate top`: the status page's first view on a terminal. The screen is in top_screen.py."""

from __future__ import annotations

import sys

from pidgate.cli.admin_client import DONE, USAGE_ERROR, BadUsage, Failed, gateways
from pidgate.cli.options import GatewayOptions, TopOptions


def top(options: TopOptions) -> int:
    """Run until `q`; return the exit code."""
    of_one = GatewayOptions(
        config=options.config,
        admin=None if options.admin is None else [options.admin],
        ca_file=options.ca_file,
        token_file=options.token_file,
    )
    try:
        from pidgate.cli.top_screen import Top

        (gateway,) = gateways(of_one)
        gateway.get("/v1/present", view="first")
    except ImportError:
        print("pidgate top: it needs textual: pip install 'pidgate[top]'", file=sys.stderr)
        return USAGE_ERROR
    except (BadUsage, Failed) as error:
        print(f"pidgate top: {error}", file=sys.stderr)
        return USAGE_ERROR
    Top(gateway).run()
    return DONE
