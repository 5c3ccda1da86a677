"""Real Kafka clusters for tests, demo and benchmarks, from the package registries alone.

    from sandbox import Cluster, ClusterSpec

    with Cluster(ClusterSpec(nodes=3, node_ids=(1, 5, 102), sasl=True)) as cluster:
        print(cluster.bootstrap_servers(), cluster.bootstrap_servers("SASL_PLAINTEXT"))

`python -m sandbox` starts one by hand. The sandbox knows nothing of the gateway and its quota: what is
proved with it is proved from outside.
"""

from pidgate.sandbox.errors import ClusterNotReady, JarsNotResolved, JavaNotFound, SandboxError, ToolFailed
from pidgate.sandbox.gclog import HeapSample
from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT, ClusterSpec
from pidgate.sandbox.tools import JavaTools, ToolResult

__all__ = [
    "PLAINTEXT",
    "SASL_PLAINTEXT",
    "Cluster",
    "ClusterNotReady",
    "ClusterSpec",
    "HeapSample",
    "JarsNotResolved",
    "JavaNotFound",
    "JavaTools",
    "SandboxError",
    "ToolFailed",
    "ToolResult",
]
