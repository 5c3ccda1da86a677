"""The Kafka cluster behind the gateway: its nodes, its topic ids, whether it can be reached."""
