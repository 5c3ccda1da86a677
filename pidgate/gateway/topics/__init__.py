"""The gateway's own Kafka topics: creation, consumption, and availability. The only user of aiokafka."""
