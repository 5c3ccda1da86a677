"""The gateway's own Kafka topics: created, followed, and why they cannot be used. The only home of aiokafka."""
