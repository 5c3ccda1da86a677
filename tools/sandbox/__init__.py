"""Real Kafka clusters for tests, demo and benchmarks, from the package registries alone.

    from tools.sandbox.kafka import Cluster, ClusterSpec

    with Cluster(ClusterSpec(nodes=3, node_ids=(1, 5, 102), sasl=True)) as cluster:
        print(cluster.bootstrap_servers(), cluster.bootstrap_servers("SASL_PLAINTEXT"))

`python -m sandbox` starts one by hand. The sandbox knows nothing of the gateway and its quota: what is
proved with it is proved from outside.
"""
