"""The present of a gateway, one model for every surface: users, waits, limits, connections, brokers, fleet."""
