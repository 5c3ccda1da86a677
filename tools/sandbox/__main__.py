"""`python -m tools.sandbox`: an interactive cluster, until Ctrl-C."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from tools.sandbox.errors import SandboxError
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.sandbox", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--version", default=NEWEST, help="Kafka's (default: %(default)s)")
    parser.add_argument("--heap", type=int, default=256, metavar="MB")
    parser.add_argument("--sasl", action="store_true", help="a SASL_PLAINTEXT listener beside PLAINTEXT")
    parser.add_argument("--auto-create-topics", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    spec = ClusterSpec(
        nodes=options.nodes,
        version=options.version,
        heap_mb=options.heap,
        sasl=options.sasl,
        properties={"auto.create.topics.enable": "true"} if options.auto_create_topics else {},
    )
    # SIGTERM ends it like Ctrl-C, including the cleanup.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Cluster(spec) as cluster:
            print(f"PLAINTEXT {cluster.bootstrap_servers()}", flush=True)
            if spec.sasl:
                print(f"SASL_PLAINTEXT {cluster.bootstrap_servers(SASL_PLAINTEXT)}", flush=True)
                print(f"users {', '.join(f'{name}:{word}' for name, word in spec.users.items())}", flush=True)
            print(f"directory {cluster.directory}", flush=True)
            while all(cluster.node(node_id).is_alive for node_id in cluster.nodes):
                time.sleep(0.5)
            print("sandbox: a node has ended", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
