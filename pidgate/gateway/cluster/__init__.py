"""The Kafka cluster behind the gateway: nodes, topic ids, reachability."""
