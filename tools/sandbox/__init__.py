"""Real Kafka clusters for tests, demos and benchmarks, from package registries only.

    from tools.sandbox.kafka import Cluster, ClusterSpec

    with Cluster(ClusterSpec(nodes=3, node_ids=(1, 5, 102), sasl=True)) as cluster:
        print(cluster.bootstrap_servers(), cluster.bootstrap_servers("SASL_PLAINTEXT"))

`python -m tools.sandbox` starts one manually. The sandbox knows nothing of the gateway and its quota, so its
results are independent evidence.
"""
